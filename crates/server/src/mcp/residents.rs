//! What is remembered of agents between their calls: the sandbox that each of
//! them lives in, and its tasks.
//!
//! Whoever comes with a session, or on standard input, has a sandbox for just
//! that long. Since 2026-07-28 there are no sessions over HTTP: then whatever
//! comes with one key is one agent. Tasks belong to a key in both cases, so
//! that nobody can ask for those of somebody else.

use rmcp::task_manager::TaskManager;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Agents without a session that are remembered; the longest silent one makes
/// room. Its sandbox stays, and can be named.
const RESIDENTS_MAX: usize = 10_000;

/// Tasks of one key, those included whose answers wait to be fetched: they wait
/// in memory, for hours if nobody does.
const TASKS_MAX: usize = 64;

/// The sandbox that is meant where none is named, once there is one.
#[derive(Clone, Default)]
pub struct Home(Arc<Mutex<Option<String>>>);

impl Home {
    /// Where the agent lives. Whoever is first makes it, and others wait.
    pub fn find_or_make(
        &self,
        make: impl FnOnce() -> fractal::Result<String>,
    ) -> fractal::Result<String> {
        let mut home = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*home {
            Some(name) => Ok(name.clone()),
            None => Ok(home.insert(make()?).clone()),
        }
    }

    /// Where the agent lives, if it has begun to.
    pub fn known(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The sandbox is gone: the next call finds a new one. Says whether the
    /// agent lived there.
    pub fn leave(&self, gone: &str) -> bool {
        let mut home = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lived_there = home.as_deref() == Some(gone);
        if lived_there {
            *home = None;
        }
        lived_there
    }
}

/// One of those who come with a key.
#[derive(Clone)]
pub struct Resident {
    pub home: Home,
    pub tasks: TaskManager,
    given: Arc<Mutex<Vec<String>>>,
    seen: Instant,
}

impl Resident {
    /// Whether one more task may be given.
    pub fn has_room(&self) -> bool {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        given.retain(|task| self.tasks.get_task(task).is_ok());
        given.len() < TASKS_MAX
    }

    /// One was given.
    pub fn was_given(&self, task: &str) {
        self.given.lock().unwrap_or_else(PoisonError::into_inner).push(task.to_owned());
    }
}

/// All of them, by the key that they come with.
#[derive(Default)]
pub struct Residents(Mutex<HashMap<String, Resident>>);

impl Residents {
    pub fn of(&self, asker: &str) -> Resident {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.contains_key(asker) {
            make_room(&mut all);
        }
        let resident = all.entry(asker.to_owned()).or_insert_with(|| Resident {
            home: Home::default(),
            tasks: TaskManager::new(),
            given: Arc::default(),
            seen: Instant::now(),
        });
        resident.seen = Instant::now();
        resident.clone()
    }
}

fn make_room(all: &mut HashMap<String, Resident>) {
    if all.len() < RESIDENTS_MAX {
        return;
    }
    let idle = all.iter().filter(|(_, resident)| resident.tasks.running_task_count() == 0);
    let longest = idle.min_by_key(|(_, resident)| resident.seen).map(|(asker, _)| asker.clone());
    if let Some(asker) = longest {
        all.remove(&asker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_keeps_its_sandbox_until_that_is_gone() {
        let residents = Residents::default();
        let live = |asker: &str, new: &str| {
            residents.of(asker).home.find_or_make(|| Ok(new.to_owned())).expect("it is made")
        };
        assert_eq!((live("a", "one").as_str(), live("a", "two").as_str()), ("one", "one"));
        assert_eq!(live("b", "two"), "two");
        assert!(!residents.of("a").home.leave("two"));
        assert!(residents.of("a").home.leave("one"));
        assert_eq!(live("a", "three"), "three");
    }

    #[tokio::test]
    async fn answers_that_nobody_fetches_are_few() {
        let residents = Residents::default();
        let give = |ttl_ms: u64| {
            let options = rmcp::task_manager::TaskOptions::new().with_ttl_ms(ttl_ms);
            let resident = residents.of("a");
            let task = resident
                .tasks
                .spawn(options, |_| Box::pin(async { Ok(rmcp::model::CallToolResult::default()) }));
            resident.was_given(&task.task_id);
        };
        for _ in 1..TASKS_MAX {
            give(3_600_000);
        }
        assert!(residents.of("a").has_room());
        give(1);
        assert!(!residents.of("a").has_room() && residents.of("b").has_room());
        // Those that are forgotten make room.
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        residents.of("a").has_room();
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        assert!(residents.of("a").has_room());
    }

    #[test]
    fn the_longest_silent_one_makes_room() {
        let residents = Residents::default();
        for number in 0..=RESIDENTS_MAX {
            residents.of(&number.to_string());
        }
        let all = residents.0.lock().expect("nobody broke it");
        assert_eq!(all.len(), RESIDENTS_MAX);
        assert!(!all.contains_key("0") && all.contains_key("1"));
    }
}
