"""DecodeSession: one iteration at a time, recorded; it forks, rewinds and resumes."""
