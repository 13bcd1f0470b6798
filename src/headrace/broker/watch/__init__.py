"""How a broker is watched: metrics, health, and the events that people should know of."""
