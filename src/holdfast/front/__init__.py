"""What every face can do and shows: the same calls for the library, HTTP, the commands and MCP."""
