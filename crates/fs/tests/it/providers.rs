//! Providers: on demand, bounded, and never able to hang or break a view.

use crate::common::{kind, mounted, path, text};
use fractal_fs::{
    Access, Call, Freshness, Item, ItemKind, Kind, Made, Memory, Mount, Other, Provider,
    ProviderBounds, Text, Vfs,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

const LIVE: Freshness = Freshness::Live(Duration::ZERO);

/// Long enough for any machine.
const PATIENCE: Duration = Duration::from_secs(120);

fn small() -> ProviderBounds {
    ProviderBounds { time_max: PATIENCE, bytes_max: 1000, names_max: 10, late_max: 2 }
}

fn hasty() -> ProviderBounds {
    ProviderBounds { time_max: Duration::from_millis(200), ..small() }
}

/// A view in which `/m/f` is made by a function.
fn made<M: Into<Made>>(
    bounds: ProviderBounds,
    read: impl Fn(&fractal_fs::Context) -> Result<M, String> + Send + Sync + 'static,
) -> Vfs {
    let provider = Provider::new(bounds).file("f", Call::default().reads(read)).unwrap();
    mounted(Arc::new(provider), LIVE)
}

#[test]
fn text_files_and_directories_are_made_on_demand() {
    let users = Call::default()
        .lists(|_| Ok([Item::file("ann"), Item::file("bob")]))
        .reads(|context| Ok(format!("{} for {:?} at {}", context.at, context.who, context.path)));
    let provider = Provider::default()
        .file("docs/readme", Text::new("read me"))
        .and_then(|provider| provider.dir("users", users))
        .unwrap();
    let view = mounted(Arc::new(provider), Freshness::Frozen);
    view.set_who("agent-7");
    assert_eq!(text(&view, "/m/docs/readme"), "read me");
    assert_eq!(text(&view, "/m/users/ann"), "/ann for \"agent-7\" at /m/users/ann");
    assert_eq!(view.list("/m/users").unwrap().len(), 2);
    let clash = Provider::default().dir("d", Text::new("")).unwrap().file("d/x", Text::new(""));
    assert_eq!(clash.err().unwrap().kind, Kind::Invalid);
    for bad in ["../x", "a/../b"] {
        let refused = Provider::default().file(bad, Text::new(""));
        assert_eq!(refused.err().unwrap().kind, Kind::Invalid, "{bad}");
    }
}

#[test]
fn a_name_that_is_not_listed_is_found_in_a_live_mount() {
    let tickets = Call::default()
        .finds(|context| {
            let number = String::from_utf8_lossy(context.at.relative()).parse::<u32>();
            Ok(number.ok().map(|_| Item::file("")))
        })
        .reads(|context| Ok(format!("ticket {}", context.at)));
    let provider = Arc::new(Provider::default().dir("/", tickets).unwrap());
    let view = mounted(provider, LIVE);
    assert_eq!(text(&view, "/m/4711"), "ticket /4711");
    assert_eq!(view.stat("/m/4711").unwrap().inode, view.stat("/m/4711").unwrap().inode);
    assert_eq!(kind(view.read("/m/none")), Kind::NotFound);
    assert!(view.list("/m").unwrap().is_empty());
}

#[test]
fn a_late_answer_is_dropped_and_few_may_be_late() {
    let (release, gate) = channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let view = made(hasty(), move |_| {
        // Until the test ends.
        let _ = gate.lock().unwrap().recv();
        Ok("late")
    });
    for _ in 0..2 {
        let error = view.read("/m/f").unwrap_err();
        assert_eq!(error.kind, Kind::Timeout);
        assert!(error.to_string().contains("no answer within 200ms"), "{error}");
    }
    let error = view.read("/m/f").unwrap_err();
    assert!(error.to_string().contains("2 earlier answers are still missing"), "{error}");
    drop(release);
    // The late ones end, and it answers again.
    let answer = std::iter::repeat_with(|| view.read("/m/f")).find_map(Result::ok);
    assert_eq!(answer.unwrap(), "late");
}

#[test]
fn endless_answers_are_cut_off() {
    let view = made(small(), |_| Ok(Made::Stream(Box::new(std::io::repeat(7)))));
    let error = view.read("/m/f").unwrap_err();
    assert!(error.to_string().contains("more than 1000 bytes"), "{error}");
    let view = made(small(), |_| Ok(vec![0u8; 1001]));
    assert_eq!(kind(view.read("/m/f")), Kind::Source);
    let names = Call::default().lists(|_| Ok((0..).map(|n: u64| Item::file(n.to_string()))));
    let provider = Provider::new(small()).dir("d", names).unwrap();
    let view = mounted(Arc::new(provider), LIVE);
    let error = view.list("/m/d").unwrap_err();
    assert!(error.to_string().contains("more than 10 names"), "{error}");
}

#[test]
fn a_panic_and_an_error_are_errors_of_the_file() {
    let view = made(small(), |_| -> Result<Vec<u8>, String> { panic!("the table is {}", "gone") });
    let error = view.read("/m/f").unwrap_err();
    let expect = "/m/f: cannot be read from its source: it panicked: the table is gone";
    assert_eq!(error.to_string(), expect);
    let view = made(small(), |_| Err::<Vec<u8>, _>("the database is away".to_owned()));
    assert!(view.read("/m/f").unwrap_err().to_string().ends_with("the database is away"));
    view.write("/x", "the view goes on").unwrap();
}

#[test]
fn a_provider_that_asks_for_itself_is_told_so() {
    let bounds = ProviderBounds { time_max: PATIENCE, ..ProviderBounds::default() };
    let view =
        made(bounds, |context| context.view.read(b"/m/f").map_err(|error| error.to_string()));
    let error = view.read("/m/f").unwrap_err();
    assert!(error.to_string().contains("asks for /f to make /f"), "{error}");
    // Two that ask each other.
    let other = |name: &'static str| {
        Call::default()
            .reads(move |context| context.view.read(name).map_err(|error| error.to_string()))
    };
    let provider = Provider::new(bounds).file("a", other("/m/b")).unwrap();
    let view = mounted(Arc::new(provider.file("b", other("/m/a")).unwrap()), LIVE);
    assert!(view.read("/m/a").unwrap_err().to_string().contains("asks for"));
    // A row of questions without end.
    let down = Call::default().finds(|_| Ok(Some(Item::file("")))).reads(|context| {
        let number: u32 = String::from_utf8_lossy(context.at.relative()).parse().unwrap();
        context.view.read(format!("/m/{}", number + 1)).map_err(|error| error.to_string())
    });
    let view = mounted(Arc::new(Provider::new(bounds).dir("/", down).unwrap()), LIVE);
    assert!(view.read("/m/0").unwrap_err().to_string().contains("ask each other in a row"));
}

#[test]
fn a_provider_may_read_the_view_and_other_providers() {
    let view = Vfs::default();
    view.write("/in", "data").unwrap();
    let read = |from: &'static str| {
        Call::default().reads(move |context| {
            let bytes = context.view.read(from).map_err(|error| error.to_string())?;
            Ok([&bytes[..], b"!"].concat())
        })
    };
    let provider = Provider::default().file("one", read("/in")).unwrap();
    let source = Arc::new(provider.file("two", read("/m/one")).unwrap());
    view.mount(Mount { path: path("/m"), source, access: Access::ReadOnly, freshness: LIVE })
        .unwrap();
    assert_eq!(text(&view, "/m/two"), "data!!");
    view.write("/in", "new").unwrap();
    assert_eq!(text(&view, "/m/two"), "new!!");
}

#[test]
fn an_answer_holds_for_its_age() {
    let count = Arc::new(AtomicU32::new(0));
    let counter = count.clone();
    let call =
        Call::default().reads(move |_| Ok(counter.fetch_add(1, Ordering::SeqCst).to_string()));
    let source = Arc::new(Provider::default().file("n", call).unwrap());
    let patient = mounted(source.clone(), Freshness::Live(Duration::from_secs(3600)));
    assert_eq!((text(&patient, "/m/n"), text(&patient, "/m/n")), ("0".into(), "0".into()));
    let eager = mounted(source, LIVE);
    assert_eq!((text(&eager, "/m/n"), text(&eager, "/m/n")), ("1".into(), "2".into()));
}

#[test]
fn memory_and_other_views_are_sources() {
    let files = [(&b"a/b"[..], "x"), (b"\xff", "odd")];
    let view = mounted(Arc::new(Memory::new(files).unwrap()), Freshness::Frozen);
    assert_eq!(text(&view, "/m/a/b"), "x");
    assert_eq!(view.read(b"/m/\xff").unwrap(), "odd");
    assert_eq!(view.read_range("/m/a/b", 0..9).unwrap(), "x");
    for twice in [[("a", ""), ("a", "")], [("a", ""), ("a/b", "")], [("a/b", ""), ("a", "")]] {
        assert_eq!(Memory::new(twice).err().unwrap().kind, Kind::Source);
    }
    let inner = Vfs::default();
    inner.write_all("/src/f", "one").unwrap();
    inner.symlink("/src/l", "f").unwrap();
    let sealed = mounted(Arc::new(Other::sealed(&inner, &path("/src"))), Freshness::Frozen);
    let follows = mounted(Arc::new(Other::following(&inner, &path("/src"))), LIVE);
    inner.write("/src/f", "two!").unwrap();
    assert_eq!((text(&sealed, "/m/f"), text(&follows, "/m/l")), ("one".into(), "two!".into()));
    sealed.append("/m/f", b"+").unwrap();
    assert_eq!(text(&inner, "/src/f"), "two!");
    // A view in itself goes as deep as anybody looks.
    let source = Arc::new(Other::following(&inner, &path("/")));
    let mount = Mount { path: path("/me"), source, access: Access::ReadOnly, freshness: LIVE };
    inner.mount(mount).unwrap();
    assert_eq!(text(&inner, "/me/me/src/f"), "two!");
    assert!(inner.list("/me".repeat(60)).is_err());
}

#[cfg(unix)]
mod commands {
    use super::*;
    use fractal_fs::Command;

    fn ran(bounds: ProviderBounds, program: &str, args: &[&str]) -> Vfs {
        let command = Command::new(program, args.iter().copied());
        mounted(Arc::new(Provider::new(bounds).file("f", command).unwrap()), LIVE)
    }

    #[test]
    fn what_a_program_prints_is_the_file() {
        let bounds = ProviderBounds { time_max: PATIENCE, ..ProviderBounds::default() };
        let view = ran(bounds, "printf", &["%s|", "a b", "$HOME; rm -rf /"]);
        assert_eq!(text(&view, "/m/f"), "a b|$HOME; rm -rf /|", "no shell between");
        let view = ran(bounds, "sh", &["-c", "echo $FRACTAL_PATH; echo why >&2; exit 3"]);
        let error = view.read("/m/f").unwrap_err().to_string();
        assert!(error.contains("exit status: 3: why"), "{error}");
        let view = ran(bounds, "no-such-program-anywhere", &[]);
        assert!(view.read("/m/f").unwrap_err().to_string().contains("no-such-program-anywhere"));
        let view = ran(ProviderBounds { bytes_max: 1000, ..bounds }, "cat", &["/dev/zero"]);
        assert!(view.read("/m/f").unwrap_err().to_string().contains("more than 1000 bytes"));
    }

    #[test]
    fn it_is_ended_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let pids = dir.path().join("pids");
        let script = format!("sleep 1000 & echo $! >{0}; echo $$ >>{0}; wait", pids.display());
        // On a slow machine it may be ended before it has said who it is.
        let told = [1, 8, 64].into_iter().find_map(|seconds| {
            let time_max = Duration::from_secs(seconds);
            let bounds = ProviderBounds { time_max, ..ProviderBounds::default() };
            let error = ran(bounds, "sh", &["-c", &script]).read("/m/f").unwrap_err().to_string();
            assert!(error.contains("was ended") || error.contains("no answer within"), "{error}");
            let told = std::fs::read_to_string(&pids).unwrap_or_default();
            (told.lines().count() == 2).then_some(told)
        });
        let pids = told.unwrap();
        for pid in pids.lines() {
            // Dead, or waiting to be taken away by whoever adopted it.
            let ended = || match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
                Ok(stat) => stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')),
                Err(_) => true,
            };
            while !ended() {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        // Left behind by a program that ended well: it holds the pipe open.
        let view = ran(small(), "sh", &["-c", "sleep 1000 & echo done"]);
        assert_eq!(text(&view, "/m/f"), "done\n");
    }
}

#[cfg(feature = "http")]
mod http {
    use super::*;
    use fractal_fs::HttpJson;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// Answers every connection with these bytes; `None` never answers.
    fn server(answer: Option<String>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/x", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let mut open = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut request = [0; 4096];
                let _ = stream.read(&mut request);
                match &answer {
                    Some(answer) => drop(stream.write_all(answer.as_bytes())),
                    None => open.push(stream),
                }
            }
        });
        url
    }

    fn asked(bounds: ProviderBounds, url: &str) -> Vfs {
        let provider = Provider::new(bounds).file("f.json", HttpJson::get(url)).unwrap();
        mounted(Arc::new(provider), LIVE)
    }

    fn answer(status: &str, more: &str, body: &str) -> String {
        let length = body.len();
        format!(
            "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n{more}\r\n{body}"
        )
    }

    #[test]
    fn json_is_a_file_and_anything_else_an_error() {
        let check = |answer: String, expect: &str| {
            let view = asked(ProviderBounds { bytes_max: 100, ..small() }, &server(Some(answer)));
            let got = view.read("/m/f.json").map_or_else(
                |error| error.to_string(),
                |bytes| String::from_utf8(bytes.to_vec()).unwrap(),
            );
            assert!(got.contains(expect), "{got} instead of {expect}");
        };
        check(answer("200 OK", "", "{\"a\": [1]}"), "{\"a\": [1]}");
        check(answer("200 OK", "", "<html>"), "something else than JSON");
        check(answer("500 Oops", "", "{}"), "answers 500");
        let elsewhere = server(Some(answer("200 OK", "", "\"secret\"")));
        check(answer("302 Found", &format!("location: {elsewhere}\r\n"), ""), "answers 302");
        check(
            answer("200 OK", "", &format!("\"{}\"", "x".repeat(200))),
            "/m/f.json: cannot be read",
        );
        check("nonsense".to_owned(), "/m/f.json: cannot be read");
    }

    #[test]
    fn a_server_that_never_answers_is_not_waited_for() {
        let view = asked(hasty(), &server(None));
        let error = view.read("/m/f.json").unwrap_err();
        assert!(matches!(error.kind, Kind::Timeout | Kind::Source), "{error}");
    }
}

/// Items of every sort, for the names of a listing.
#[test]
fn names_that_climb_are_refused_in_providers_too() {
    for name in ["..", "a/b", "", "x\0"] {
        let call = Call::default().lists(move |_| Ok([Item::new(name, ItemKind::Dir)]));
        let view = mounted(Arc::new(Provider::default().dir("/", call).unwrap()), LIVE);
        assert_eq!(kind(view.list("/m")), Kind::Source, "{name:?}");
    }
}
