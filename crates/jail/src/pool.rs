//! Namespaces that are ready before anybody asks for them.
//!
//! A user namespace and a network namespace depend on nothing that a caller
//! says, and take a good part of a start. The spawner makes a few of them while
//! it has nothing else to do, and a run that wants one takes it. Each is fresh:
//! it is given to one run, has had no process in it, and never comes back.
//!
//! Only root's tiers take from here. An ordinary user's run is born into all of
//! its namespaces at once.

use crate::child::{Ready, map_users, new_network};
use crate::plan::{Mapping, Plan, network_steps};
use crate::run::own;
use crate::step::Step;
use crate::sys::{Sys, fd, process};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};

/// How many of each kind wait. What comes faster than they are made again does
/// without them, and is no slower than it would be without a pool.
const READY_MAX: usize = 4;

/// What is ready, and what will be wanted next.
pub struct Pool {
    users: Vec<OwnedFd>,
    networks: Vec<OwnedFd>,
    /// The maps of `users`.
    mapping: Mapping,
    /// What makes a network namespace one of a sandbox.
    steps: Vec<Step>,
    /// Where the spawner itself lives.
    home: OwnedFd,
    /// The machine gives no more; not tried again before the next run.
    exhausted: bool,
}

impl Pool {
    /// An empty one; `None` for whoever could not fill it: who cannot enter the
    /// network that it is in could not come back from another one. (Root in a
    /// user namespace of its own is such a one.)
    pub fn new() -> Option<Pool> {
        let (uid, _) = process::effective_ids();
        let steps = network_steps().ok().filter(|_| uid == 0)?;
        let home = own(fd::open(c"/proc/self/ns/net", libc::O_RDONLY, 0).ok()?);
        process::enter_namespace(home.as_raw_fd(), libc::CLONE_NEWNET).ok()?;
        Some(Pool {
            users: Vec::new(),
            networks: Vec::new(),
            mapping: Mapping::Shifted,
            steps,
            home,
            exhausted: false,
        })
    }

    /// Whether a run like this takes from a pool.
    pub fn serves(plan: &Plan, joins: bool) -> bool {
        !joins && matches!(plan.mapping, Mapping::Shifted | Mapping::Same)
    }

    /// What a run can have of it. The descriptors are the caller's to close.
    pub fn take(&mut self, plan: &Plan, joins: bool) -> Ready {
        self.exhausted = false;
        let mut ready = Ready::NOTHING;
        if !Pool::serves(plan, joins) {
            return ready;
        }
        if self.mapping != plan.mapping {
            self.users.clear();
            self.mapping = plan.mapping;
        }
        let number = |taken: Option<OwnedFd>| taken.map_or(-1, IntoRawFd::into_raw_fd);
        ready.user = number(self.users.pop());
        if plan.network.as_ref().is_some_and(|steps| *steps == self.steps) {
            ready.network = number(self.networks.pop());
        }
        ready
    }

    /// Whether there is something left to make.
    pub fn wants_more(&self) -> bool {
        !self.exhausted && (self.users.len() < READY_MAX || self.networks.len() < READY_MAX)
    }

    /// Makes one of what is missing most.
    pub fn fill(&mut self) {
        let made = match self.networks.len() <= self.users.len() {
            true => self.make_network().map(|network| self.networks.push(network)),
            false => self.make_user().map(|user| self.users.push(user)),
        };
        self.exhausted = made.is_err();
    }

    fn make_user(&self) -> Sys<OwnedFd> {
        let mapping = self.mapping;
        let made = process::with_sleeper(libc::CLONE_NEWUSER, |pid| map_users(pid, mapping))?;
        made.map(own).map_err(|(_, errno)| errno)
    }

    /// Goes there, furnishes it and comes back. Monitors are split off where we
    /// are, so a spawner that cannot come back must not split off another.
    fn make_network(&self) -> Sys<OwnedFd> {
        let made = new_network(&self.steps).map(own);
        if process::enter_namespace(self.home.as_raw_fd(), libc::CLONE_NEWNET).is_err() {
            process::exit_now(125);
        }
        made
    }
}
