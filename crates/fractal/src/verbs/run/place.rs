//! Where a run happens and what holds for it: decided, nothing touched.

use crate::config::or;
use crate::doorway::{Promised, bound_ttl};
use crate::template::Template;
use crate::{Caller, Engine, environment, names, stages, stale};
use fractal_jail::Living;
use fractal_model::{
    BaseKind, Code, Error, Id, Limits, MountSource, Network, Policy, Result, Run, Tier, Wider,
    World,
};
use fractal_store::{Reads, SandboxRow, new_id, now_ms};
use std::path::PathBuf;

/// Where a run happens, decided before anything is touched.
pub(super) struct Place {
    pub row: SandboxRow,
    /// The run's own id.
    pub run_id: Id,
    /// How strongly it is fenced.
    pub tier: Tier,
    /// How it runs.
    pub world: World,
    /// A run in the same sandbox to join.
    pub join: Option<Living>,
    /// What holds for this run.
    pub policy: Policy,
    pub template: Option<Template>,
    pub is_new: bool,
    /// The sandbox that a throw-away run stands on, where it is not reality.
    pub parent: Option<SandboxRow>,
    /// What a new sandbox is to stand on.
    pub base: BaseKind,
    /// The top lives in memory and the sandbox in no table.
    pub in_memory: Option<u64>,
    /// Room behind a door for the copy of what runs in the parent.
    pub _copy: Option<Promised>,
}

/// How it runs: as asked, or as the template says.
fn choose_world(run: &Run, template: Option<&Template>) -> World {
    run.world.or(template.map(|template| template.world)).unwrap_or_default()
}

/// The machine's tier, if it is enough for the policy.
fn choose_tier(engine: &Engine, policy: &Policy, world: World) -> Result<Tier> {
    if world == World::Virtual {
        return Ok(Tier::Virtual);
    }
    let tier = engine.tier()?;
    match policy.isolation {
        Some(least) if tier < least => Err(Error::new(
            Code::Unsupported,
            format!(
                "isolation `{}` was asked, this machine reaches `{}`",
                least.name(),
                tier.name()
            ),
        )
        .hint("`fractal doctor` shows what is missing and the fix")),
        _ => Ok(tier),
    }
}

/// Longer than anybody keeps anything, and far from what a table can hold.
const TTL_MS_MAX: u64 = 100 * 366 * 86_400_000;

/// Refuses to keep something for longer than there is a number for.
pub fn check_ttl(ttl_ms: Option<u64>) -> Result<()> {
    match ttl_ms.is_some_and(|ttl| ttl > TTL_MS_MAX) {
        true => Err(Error::invalid("nothing is kept for longer than 100 years")
            .hint("choose a shorter time: `--ttl 30d`")),
        false => Ok(()),
    }
}

pub(super) fn decide(engine: &Engine, caller: &Caller, run: &Run) -> Result<Place> {
    run.ask.check()?;
    check_ttl(run.ttl_ms)?;
    match &run.sandbox {
        Some(selector) if run.discard => decide_child(engine, caller, run, selector),
        Some(selector) => {
            let place = decide_existing(engine, caller, run, selector)?;
            stages::refuse_write(&place.row, "run in").map(|()| place)
        }
        None => match &caller.door {
            Some(door) => decide_below(engine, caller, run, door.root),
            None => decide_new(engine, caller, run),
        },
    }
}

/// A new sandbox of who is in one is a child of that one.
fn decide_below(engine: &Engine, caller: &Caller, run: &Run, root: Id) -> Result<Place> {
    let mut place = decide_child(engine, caller, run, root.as_str())?;
    let row = &mut place.row;
    if run.template.as_ref().is_some_and(|asked| *asked != row.template) {
        return Err(Error::denied(format!(
            "what is below this sandbox follows `{}`",
            row.template
        ))
        .hint("leave out `--template`"));
    }
    if run.base != BaseKind::Live {
        return Err(
            Error::denied("what is below this sandbox stands on it").hint("leave out `--base`")
        );
    }
    if engine.store.sandbox_named(&row.tenant, &row.name)?.is_some() {
        return Err(Error::new(Code::Exists, format!("there is already a sandbox `{}`", row.name))
            .hint("choose another name"));
    }
    let mut ask = Policy { network: Network::Host, ..run.ask.clone() };
    (ask.limits.time_ms, ask.limits.output_bytes) = (None, None);
    if let Some(network) = &run.network {
        ask.network = network.clone();
    }
    row.policy = row.policy.meet(&ask);
    if !run.discard {
        let usual = caller.config.ttl_ms()?;
        // One that goes with its run says nothing about what is below it.
        let parent = place.parent.as_ref().and_then(|parent| parent.ttl_ms);
        let own = parent.filter(|ttl| *ttl > 0).unwrap_or(usual);
        row.ttl_ms = bound_ttl(caller, Some(run.ttl_ms.unwrap_or(usual)), own);
    }
    Ok(place)
}

/// A throw-away run in a sandbox happens in a child of it, so that the
/// sandbox stays as it is and others may go on in it. The child's top is on
/// disk: what checks build would not always fit into memory.
fn decide_child(engine: &Engine, caller: &Caller, run: &Run, selector: &str) -> Result<Place> {
    engine.require_room_below(caller)?;
    let mut place = decide_existing(engine, caller, run, selector)?;
    place._copy = engine.require_copy_below(caller, &place.row)?;
    let parent = place.row.clone();
    let (id, now) = (new_id(), now_ms());
    place.row = SandboxRow {
        id,
        name: new_name(run, id)?,
        parent: Some(parent.id),
        top: new_id(),
        policy: caller.policy.meet(&parent.policy),
        created_ms: now,
        touched_ms: now,
        // Should its process be killed, it expires at once.
        ttl_ms: Some(0),
        epoch: 0,
        ..parent.clone()
    };
    place.is_new = true;
    place.parent = Some(parent);
    Ok(place)
}

fn new_name(run: &Run, id: Id) -> Result<String> {
    match &run.name {
        Some(name) => names::read(name),
        None => Ok(names::for_id(id)),
    }
}

fn decide_existing(engine: &Engine, caller: &Caller, run: &Run, selector: &str) -> Result<Place> {
    let row = engine.find(caller, Some(selector))?;
    let allowed = caller.policy.meet(&row.policy);
    refuse_wider(&row.name, &allowed, &run.ask, run.network.as_ref())?;
    let template = Template::find(caller, &row.template).ok();
    let mut policy = allowed.meet(&run.ask).meet(&for_one_run(caller, run, template.as_ref())?);
    if let Some(network) = &run.network {
        policy = policy.meet(&Policy { network: network.clone(), ..Policy::default() });
    }
    let world = choose_world(run, template.as_ref());
    Ok(Place {
        row,
        run_id: new_id(),
        tier: choose_tier(engine, &policy, world)?,
        world,
        join: None,
        policy,
        template,
        is_new: false,
        parent: None,
        base: BaseKind::Live,
        in_memory: None,
        _copy: None,
    })
}

fn decide_new(engine: &Engine, caller: &Caller, run: &Run) -> Result<Place> {
    let template_name = run.template.clone().unwrap_or_else(|| caller.config.default_template());
    let template = Template::find(caller, &template_name)?;
    engine.require_new_within(caller, &template.name)?;
    refuse_wider("reality", &caller.policy, &run.ask, run.network.as_ref())?;
    let policy = new_policy(caller, run, &template)?;
    let row = new_row(engine, caller, run, &template, &policy)?;
    let policy = policy.meet(&for_one_run(caller, run, Some(&template))?).meet(&caller.policy);
    let world = choose_world(run, Some(&template));
    let tier = choose_tier(engine, &policy, world)?;
    // A copy is a directory on disk.
    let on_disk = tier == Tier::Copied || run.base == BaseKind::Frozen;
    // Others stand on what has a door, so it must be in a table.
    let in_memory = memory_for(run, &template, &policy).filter(|_| !on_disk && !run.door);
    Ok(Place {
        row,
        run_id: new_id(),
        tier,
        world,
        join: None,
        policy,
        template: Some(template),
        is_new: true,
        parent: None,
        base: run.base,
        in_memory,
        _copy: None,
    })
}

/// Time and output bound one run, not the sandbox.
fn for_one_run(caller: &Caller, run: &Run, template: Option<&Template>) -> Result<Policy> {
    let template = template.map(|template| template.limits.clone()).unwrap_or_default();
    let given = or(or(run.ask.limits.clone(), template), caller.config.limits()?);
    let limits =
        Limits { time_ms: given.time_ms, output_bytes: given.output_bytes, ..Limits::default() };
    Ok(Policy { limits, ..Policy::default() })
}

/// The time limit of a run under this policy and template where this one is
/// asked for, or the usual one; never more than is allowed.
pub fn time_ms(
    caller: &Caller,
    policy: &Policy,
    template: &str,
    asked: Option<u64>,
) -> Result<Option<u64>> {
    let limits = Limits { time_ms: asked, ..Limits::default() };
    let run = Run { ask: Policy { limits, ..Policy::default() }, ..Run::default() };
    let template = Template::find(caller, template).ok();
    let own = for_one_run(caller, &run, template.as_ref())?;
    Ok(caller.policy.meet(policy).meet(&own).limits.time_ms)
}

/// What is asked must lie within what is allowed: lowering it silently would
/// let a script believe in limits it does not have.
pub fn refuse_wider(
    name: &str,
    allowed: &Policy,
    ask: &Policy,
    network: Option<&Network>,
) -> Result<()> {
    if let Some(wider) = ask.limits.first_wider(&allowed.limits) {
        let Wider { name: what, asked, allowed } = wider;
        return Err(Error::denied(format!("`{name}` allows {what} {allowed}, {asked} was asked"))
            .hint("a sandbox is never widened: make a new one with the limits you need"));
    }
    let wanted = network.unwrap_or(&Network::None);
    let asked = Policy { network: wanted.clone(), ..Policy::default() };
    if allowed.network == Network::Host || asked.meet(allowed).network == *wanted {
        return Ok(());
    }
    Err(Error::denied(format!("the policy of `{name}` does not allow this network"))
        .hint("a sandbox is never widened: make a new one with `fractal run --net … -- CMD`"))
}

/// What a new sandbox may do, where a run asks for it.
pub fn new_policy(caller: &Caller, run: &Run, template: &Template) -> Result<Policy> {
    let defaults = or(template.limits.clone(), caller.config.limits()?);
    let mut limits = or(run.ask.limits.clone(), defaults);
    // These two bound one run, not the sandbox.
    (limits.time_ms, limits.output_bytes) = (None, None);
    let network = match (&run.network, &template.network) {
        (Some(asked), _) => asked.clone(),
        (None, Some(given)) => given.clone(),
        (None, None) => caller.config.network()?,
    };
    let home = caller
        .environment
        .iter()
        .find(|(key, _)| key == "HOME")
        .map(|(_, value)| PathBuf::from(value))
        .or_else(environment::user_home);
    let (hide, show) = caller.config.hide_and_show();
    let expand = |path: &String| match (path.strip_prefix("~/"), &home) {
        (Some(rest), Some(home)) => home.join(rest).display().to_string(),
        _ => path.clone(),
    };
    let shown: Vec<String> = show.iter().map(expand).collect();
    let mut hidden = run.ask.hidden.clone();
    hidden.extend(hide.iter().chain(&template.hide).map(expand));
    hidden.extend(
        environment::default_hidden(home.as_deref())
            .into_iter()
            .filter(|path| !shown.contains(path)),
    );
    let mut read_only = run.ask.read_only.clone();
    read_only.extend(template.read_only.iter().map(expand));
    let asked = Policy {
        limits,
        network,
        hidden,
        read_only,
        allow: None,
        isolation: run.ask.isolation,
        tools: template.tools.clone(),
    };
    Ok(caller.policy.meet(&asked))
}

fn new_row(
    engine: &Engine,
    caller: &Caller,
    run: &Run,
    template: &Template,
    policy: &Policy,
) -> Result<SandboxRow> {
    let id = new_id();
    let now = now_ms();
    Ok(SandboxRow {
        id,
        name: new_name(run, id)?,
        parent: None,
        base: None,
        top: new_id(),
        policy: policy.clone(),
        template: template.name.clone(),
        mounts: template.mounts.clone(),
        directory: caller.directory.clone(),
        created_ms: now,
        touched_ms: now,
        // Should its process be killed, a throw-away sandbox expires at once.
        ttl_ms: match run.discard {
            true => Some(0),
            false => Some(run.ttl_ms.map_or_else(|| caller.config.ttl_ms(), Ok)?),
        },
        fork_ctime_ns: if run.discard {
            now as i64 * 1_000_000
        } else {
            stale::file_clock_ns(engine.home())
        },
        epoch: 0,
        tenant: caller.reach.home().to_owned(),
    })
}

/// A throw-away run writes to memory when what it may write fits there.
fn memory_for(run: &Run, template: &Template, policy: &Policy) -> Option<u64> {
    let scratch = template.mounts.iter().any(|mount| mount.source == MountSource::Scratch);
    if !run.discard || scratch {
        return None;
    }
    let half = memory_total_bytes() / 2;
    match (policy.limits.disk_bytes, policy.limits.memory_bytes) {
        (Some(disk), _) if disk > half => None,
        // Memory files count towards the memory limit, which would turn a
        // large file into a kill.
        (disk, Some(memory)) if disk.is_none_or(|disk| disk > memory / 4) => None,
        (Some(disk), _) => Some(disk),
        (None, _) => Some(half),
    }
}

pub fn memory_total_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram as u64 * u64::from(info.mem_unit)
}
