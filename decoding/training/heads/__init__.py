"""Training draft heads over a target's features: EAGLE, HASS and TALF."""
