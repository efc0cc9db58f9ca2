"""What crosses a process border, without the crossing: messages, layouts, trees, layout tables; the seam of extensions.

Pure: no socket, clock, thread or torch in here.
"""
