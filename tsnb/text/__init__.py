"""Text: what messages are made of, and how text from elsewhere is taken in and shown.

| module | what it owns |
|---|---|
| `words` | the nearest known word, sizes, times, rows as text or HTML |
| `numbers` | numbers as every screen writes them |
| `names` | names of trials, cut so that they stay apart |
| `printable` | foreign text, made fit to be shown |
| `masks` | secrets among parameters |
| `foreign` | JSON from elsewhere, made into dataclasses |
"""
