//! Processor time of this thread: what else the machine does hardly counts.

use rustix::time::{ClockId, clock_gettime};

#[derive(Clone, Copy)]
pub struct Clock(u64);

impl Clock {
    pub fn now() -> Clock {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Clock(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }

    pub fn ns(self) -> u64 {
        Clock::now().0 - self.0
    }
}
