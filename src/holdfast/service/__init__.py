"""Operations that every interface shares: library, HTTP, CLI, page and MCP."""
