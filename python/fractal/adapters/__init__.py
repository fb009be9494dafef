"""fractal for agent frameworks: one module each, which needs that framework."""
