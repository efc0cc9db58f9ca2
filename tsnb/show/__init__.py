"""What screens say of a stream, in words. It reads telemetry, which knows no words of screens.

| module | what it owns |
|---|---|
| `words` | states, names and facts as the panel writes them |
| `view_text` | a stream's view as lines of plain text |
"""
