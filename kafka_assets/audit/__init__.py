"""Looking at what is there: standing, doctor, the demo's verdict."""
