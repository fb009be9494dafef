//! Pages of a list, as clients cut and filter them.

use super::ENVD_VERSION;
use super::book::{Entry, Phase, public};
use axum::http::{HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use fractal::{Error, Result};
use serde::Deserialize;
use serde_json::{Value, json};
use std::cmp::Reverse;

const PAGE: usize = 100;
const PAGE_MAX: usize = 1000;

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Wanted {
    metadata: Option<String>,
    state: Option<String>,
    order: Option<String>,
    template: Option<String>,
    next_token: Option<String>,
    limit: Option<usize>,
    started_after: Option<String>,
    #[serde(rename = "sandboxID")]
    pub sandbox_id: Option<String>,
    pub name: Option<String>,
}

/// One sandbox in a list.
pub fn listed(entry: &Entry) -> Value {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    json!({
        "sandboxID": entry.public_id(),
        "templateID": entry.template,
        "alias": entry.template,
        "clientID": "fractal",
        "startedAt": moment(entry.started_ms),
        "endAt": moment(entry.ends_ms),
        "cpuCount": cores,
        "memoryMB": memory_mb(),
        "diskSizeMB": 0,
        "state": if entry.phase == Phase::Paused { "paused" } else { "running" },
        "envdVersion": ENVD_VERSION,
        "metadata": entry.metadata,
    })
}

/// A page as it is answered, with the token of the next one.
pub fn answer(page: Vec<Value>, next: Option<String>) -> Response {
    const NEXT: HeaderName = HeaderName::from_static("x-next-token");
    let mut response = axum::Json(page).into_response();
    if let Some(next) = next.and_then(|next| HeaderValue::from_str(&next).ok()) {
        response.headers_mut().insert(NEXT, next);
    }
    response
}

/// A moment as RFC 3339 has it.
pub fn moment(ms: u64) -> String {
    fractal::model::format_iso_ms(ms)
}

fn memory_mb() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

/// A page of these, and the token of the next one.
pub fn page(all: Vec<Entry>, wanted: &Wanted) -> Result<(Vec<Entry>, Option<String>)> {
    let is_sandbox = |entry: &Entry| entry.phase != Phase::Snapshot;
    let metadata = pairs(wanted.metadata.as_deref().unwrap_or_default())?;
    let states = states(wanted.state.as_deref())?;
    let after = match wanted.started_after.as_deref() {
        None | Some("") => 0,
        Some(text) => fractal::model::parse_iso_ms(text)
            .ok_or_else(|| Error::invalid("`startedAfter` is no moment"))?,
    };
    let fits = |entry: &Entry| {
        is_sandbox(entry)
            && states.contains(&entry.phase)
            && entry.started_ms >= after
            && wanted.template.as_ref().is_none_or(|template| *template == entry.template)
            && metadata.iter().all(|(key, value)| entry.metadata.get(key) == Some(value))
    };
    let all: Vec<Entry> = all.into_iter().filter(fits).collect();
    cut(all, wanted, |entry| entry.started_ms)
}

/// So many, after the one that the token names.
pub fn cut(
    mut all: Vec<Entry>,
    wanted: &Wanted,
    moment: impl Fn(&Entry) -> u64,
) -> Result<(Vec<Entry>, Option<String>)> {
    let oldest_first = match wanted.order.as_deref() {
        None | Some("" | "desc") => false,
        Some("asc") => true,
        Some(_) => return Err(Error::invalid("`order` is asc or desc")),
    };
    let limit = wanted.limit.unwrap_or(PAGE);
    if limit == 0 || limit > PAGE_MAX {
        return Err(Error::invalid(format!("`limit` is 1 to {PAGE_MAX}")));
    }
    let place = |entry: &Entry| (moment(entry), entry.id);
    match oldest_first {
        true => all.sort_by_key(place),
        false => all.sort_by_key(|entry| Reverse(place(entry))),
    }
    if let Some(token) = wanted.next_token.as_deref().filter(|token| !token.is_empty()) {
        let bad = || Error::invalid("`nextToken` is none of ours");
        let (ms, id) = token.split_once('-').ok_or_else(bad)?;
        let id = super::book::private(id).ok_or_else(bad)?;
        let last: (u64, fractal::model::Id) = (ms.parse().map_err(|_| bad())?, id);
        all.retain(|entry| match oldest_first {
            true => place(entry) > last,
            false => place(entry) < last,
        });
    }
    let more = all.len() > limit;
    all.truncate(limit);
    let token = |entry: &Entry| format!("{}-{}", moment(entry), public(entry.id));
    let next = all.last().filter(|_| more).map(token);
    Ok((all, next))
}

fn states(text: Option<&str>) -> Result<Vec<Phase>> {
    let text = text.filter(|text| !text.is_empty()).unwrap_or("running,paused");
    text.split(',')
        .map(|word| match word {
            "running" => Ok(Phase::Running),
            "paused" => Ok(Phase::Paused),
            _ => Err(Error::invalid("`state` is running or paused")),
        })
        .collect()
}

/// `a=b&c=d`, with both sides in percent signs.
fn pairs(text: &str) -> Result<Vec<(String, String)>> {
    let bad = || Error::invalid("`metadata` does not read: it is `key=value&key=value`");
    let pieces = text.split('&').filter(|piece| !piece.is_empty());
    pieces
        .map(|piece| {
            let (key, value) = piece.split_once('=').ok_or_else(bad)?;
            Ok((twice_decoded(key).ok_or_else(bad)?, twice_decoded(value).ok_or_else(bad)?))
        })
        .collect()
}

/// Clients encode both sides by themselves, and then once more as pairs.
fn twice_decoded(text: &str) -> Option<String> {
    let once = decoded(text)?;
    Some(decoded(&once).unwrap_or(once))
}

fn decoded(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let byte = match bytes[at] {
            b'+' => b' ',
            b'%' => {
                at += 2;
                u8::from_str_radix(text.get(at - 1..=at)?, 16).ok()?
            }
            byte => byte,
        };
        out.push(byte);
        at += 1;
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fractal::model::Id;

    fn entry(number: u64) -> Entry {
        let id = format!("01M7JG3D8E1MV1YPPAV0WGS{number:03}");
        let text = json!({ "id": Id::parse(&id).expect("an id"), "template": "base",
            "started_ms": number, "ends_ms": 9, "metadata": { "n": (number % 2).to_string() } });
        serde_json::from_value(text).expect("an entry")
    }

    #[test]
    fn pages_hold_everything_once() {
        let all: Vec<Entry> = (0..7).map(entry).collect();
        for order in ["asc", "desc"] {
            let (mut token, mut found) = (None, Vec::new());
            loop {
                let order = Some(order.to_owned());
                let wanted =
                    Wanted { limit: Some(3), next_token: token, order, ..Wanted::default() };
                let (page, next) = page(all.clone(), &wanted).expect("it is sound");
                found.extend(page.iter().map(|entry| entry.started_ms));
                token = next;
                if token.is_none() {
                    break;
                }
            }
            if order == "desc" {
                found.reverse();
            }
            assert_eq!(found, (0..7).collect::<Vec<_>>(), "{order}");
        }
    }

    #[test]
    fn metadata_is_compared_as_it_was_written() {
        let wanted = Wanted { metadata: Some("n=%31".to_owned()), ..Wanted::default() };
        let (found, _) = page((0..4).map(entry).collect(), &wanted).expect("it is sound");
        assert_eq!(found.len(), 2);
        assert_eq!(decoded("a%20b+c").as_deref(), Some("a b c"));
        assert!(["%", "%2", "%zz", "%ff"].iter().all(|text| decoded(text).is_none()));
        let bad = Wanted { next_token: Some("x".to_owned()), ..Wanted::default() };
        assert!(page(Vec::new(), &bad).is_err());
    }
}
