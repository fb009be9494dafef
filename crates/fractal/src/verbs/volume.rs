//! `volume`: directories that outlive sandboxes.

use crate::{Caller, Engine, record};
use fractal_jail::layer::{CopyOptions, Layer, View, copy_out};
use fractal_model::{
    Code, Error, MountSource, Name, Reach, Reply, Result, SandboxPath, VolumeInfo, VolumeVerb,
    format_iso_ms,
};
use fractal_store::{Reads, VolumeRow, now_ms};
use serde_json::json;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

pub fn volume(engine: &Engine, caller: &Caller, verb: VolumeVerb) -> Result<Reply> {
    match verb {
        VolumeVerb::Create { name } => create(engine, caller, &name).map(Reply::Volume),
        VolumeVerb::List => {
            let mut rows = engine.store.volumes()?;
            rows.retain(|row| caller.reach.has_tenant(&row.tenant));
            let volumes = rows.iter().map(|row| info(engine, row)).collect::<Result<_>>()?;
            Ok(Reply::Volumes { volumes })
        }
        VolumeVerb::Show { name } => info(engine, &find(engine, caller, &name)?).map(Reply::Volume),
        VolumeVerb::Rm { name } => remove(engine, caller, &name),
        VolumeVerb::Import { name, from } => {
            import(engine, caller, &name, &from).map(Reply::Volume)
        }
    }
}

fn create(engine: &Engine, caller: &Caller, name: &str) -> Result<VolumeInfo> {
    let name = Name::parse(name)?;
    if engine.store.volume(caller.reach.home(), name.as_str())?.is_some() {
        return Err(Error::new(Code::Exists, format!("there is already a volume `{name}`")).hint(
            format!("look at it with `fractal volume show {name}`, or choose another name"),
        ));
    }
    insert(engine, caller, &name, "create")?;
    info(engine, &find(engine, caller, name.as_str())?)
}

fn insert(engine: &Engine, caller: &Caller, name: &Name, verb: &str) -> Result<PathBuf> {
    let tenant = caller.reach.home();
    let data = engine.store.new_volume_dir(tenant, name)?;
    let mut body = record(caller, "volume", None);
    body.detail = json!({ "verb": verb, "volume": name });
    engine.store.transact(|tx| {
        let tenant = tenant.to_owned();
        tx.insert_volume(&VolumeRow { name: name.clone(), created_ms: now_ms(), tenant })?;
        tx.append(body)
    })?;
    Ok(data)
}

/// A volume's directory, made on first use.
pub fn ensure(engine: &Engine, tenant: &str, name: &Name) -> Result<PathBuf> {
    if engine.store.volume(tenant, name.as_str())?.is_none() {
        let reach = Reach { tenant: Some(tenant.to_owned()), ..Reach::default() };
        let maker = Caller { reach, ..Caller::owner("/") };
        let made = insert(engine, &maker, name, "create");
        // Somebody else may have been faster.
        if let Err(error) = made
            && error.code != Code::Exists
        {
            return Err(error);
        }
    }
    Ok(engine.store.volume_data(tenant, name))
}

fn find(engine: &Engine, caller: &Caller, name: &str) -> Result<VolumeRow> {
    let own = engine.store.volume(caller.reach.home(), name)?;
    own.ok_or_else(|| {
        Error::not_found(format!("there is no volume `{}`", name.escape_debug()))
            .hint("`fractal volume list` shows what there is")
    })
}

fn users(engine: &Engine, volume: &VolumeRow) -> Result<Vec<String>> {
    let uses = |mount: &fractal_model::Mount| matches!(&mount.source, MountSource::Volume(other) if other == volume.name.as_str());
    let rows = engine.store.sandboxes()?.into_iter().filter(|row| row.tenant == volume.tenant);
    Ok(rows.filter(|row| row.mounts.iter().any(uses)).map(|row| row.name).collect())
}

fn info(engine: &Engine, row: &VolumeRow) -> Result<VolumeInfo> {
    Ok(VolumeInfo {
        name: row.name.to_string(),
        created: format_iso_ms(row.created_ms),
        size_bytes: engine.store.volume_size(row)?,
        used_by: users(engine, row)?,
    })
}

fn remove(engine: &Engine, caller: &Caller, name: &str) -> Result<Reply> {
    let row = find(engine, caller, name)?;
    let users = users(engine, &row)?;
    if !users.is_empty() {
        return Err(Error::new(
            Code::Busy,
            format!("the volume `{name}` is mounted in {}", users.join(", ")),
        )
        .hint(format!("drop them first: `fractal drop {}`", users.join(" "))));
    }
    let mut body = record(caller, "volume", None);
    body.detail = json!({ "verb": "rm", "volume": name });
    engine.store.transact(|tx| {
        tx.delete_volume(&row.tenant, name)?;
        tx.append(body)?;
        engine.store.discard_volume(&row)
    })?;
    Ok(Reply::Done { dropped: vec![name.to_owned()] })
}

/// Copies a host directory's content into a volume, made if needed.
fn import(engine: &Engine, caller: &Caller, name: &str, from: &str) -> Result<VolumeInfo> {
    engine.refuse_host_path(caller, "import a volume")?;
    let name = Name::parse(name)?;
    let source = caller.directory.join(from);
    if !source.is_dir() {
        return Err(Error::not_found(format!("{} is no directory", source.display())));
    }
    let data = ensure(engine, caller.reach.home(), &name)?;
    let view = View { host: Some(Layer::open(&source)?), ..View::default() };
    copy_all(&view, &data)?;
    let mut body = record(caller, "volume", None);
    body.detail = json!({ "verb": "import", "volume": name });
    engine.store.transact(|tx| tx.append(body))?;
    info(engine, &find(engine, caller, name.as_str())?)
}

/// Copies every entry of a view's root into a directory.
fn copy_all(view: &View, to: &Path) -> Result<()> {
    let dir = std::fs::File::open(to)
        .map_err(|error| Error::internal(format!("cannot open {}: {error}", to.display())))?;
    let options = CopyOptions { keep_owner: true, ..CopyOptions::default() };
    for entry in view.read_dir(&SandboxPath::root())? {
        let path = SandboxPath::root().join(&entry.name)?;
        let name: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(&entry.name);
        copy_out(view, &path, dir.as_fd(), name, &options)?;
    }
    Ok(())
}
