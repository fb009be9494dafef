//! `fractal sh` and `--virtual`: the same verbs over a shell in memory.

use crate::world::World;
