//! A session whose variables fill their limit can run nothing any more, not
//! even `unset`: every command wants a little. So the largest are forgotten
//! when a script ends at that limit.

use bashkit::{Bash, ShellState};

/// What one entry of an array costs besides its text.
const ENTRY_BYTES: usize = 32;

/// Forgets the largest variables until they take less than half of the
/// limit; says which.
pub(super) fn make_room(bash: &mut Bash, bytes_max: usize) -> Vec<String> {
    let mut state = bash.shell_state();
    let mut sizes = sizes(&state);
    sizes.sort();
    let mut held: usize = sizes.iter().map(|(size, _)| size).sum();
    let mut gone = Vec::new();
    while held > bytes_max / 2
        && let Some((size, name)) = sizes.pop()
    {
        held -= size;
        state.variables.remove(&name);
        state.env.remove(&name);
        state.arrays.remove(&name);
        state.assoc_arrays.remove(&name);
        gone.push(name);
    }
    bash.restore_shell_state(&state);
    gone
}

fn sizes(state: &ShellState) -> Vec<(usize, String)> {
    let plain = state.variables.iter().map(|(name, value)| (value.len(), name.clone()));
    let listed = state.arrays.iter().map(|(name, array)| {
        (array.values().map(|value| value.len() + ENTRY_BYTES).sum(), name.clone())
    });
    let mapped = state.assoc_arrays.iter().map(|(name, array)| {
        let size = array.iter().map(|(key, value)| key.len() + value.len() + ENTRY_BYTES).sum();
        (size, name.clone())
    });
    plain.chain(listed).chain(mapped).collect()
}
