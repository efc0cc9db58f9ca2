"""What runs in every background kernel: setting it up, and reporting back. The notebook never imports it.

| module | what it owns |
|---|---|
| `application` | the ipykernel application: private files, and no code that another user could have put there |
| `arrival` | the variables, settings and modules of the notebook, taken in |
| `forked` | what a kernel must not share with the server that it was forked from |
| `surroundings` | spawned workers, progress bars: what libraries find in a kernel |
| `output_channel` | its output channel: messages of our own kinds, and what its forked workers print |
| `hazards` | forking a kernel in the middle of its code: what forbids it, and the fork itself |
| `front` | new channels and threads of a kernel that was cloned so |
"""
