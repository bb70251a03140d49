"""Pure functions from logs to numbers: online accuracy, blind baseline, transfer, geolocation error."""
