"""Where documents come from: it looks at folders and at the web, and says what is there."""
