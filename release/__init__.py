"""What makes a release: `make dist` builds and checks it. Publishing is for a person (CONTRIBUTING.md)."""
