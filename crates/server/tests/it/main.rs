//! The description of the interface, beside the file that people and
//! generators of clients read.

/// A change here is a change of the interface: look at it, then bless it.
#[test]
fn the_description_is_the_one_in_the_docs() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
    let mut now = serde_json::to_string_pretty(&fractal_server::openapi()).expect("it is JSON");
    now.push('\n');
    if std::env::var_os("FRACTAL_BLESS").is_some() {
        std::fs::write(path, &now).expect("it can be written");
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == now,
        "the interface changed: FRACTAL_BLESS=1 cargo test -p fractal-server writes {path} anew"
    );
}

/// What generators of clients stumble over.
#[test]
fn every_operation_has_a_name_of_its_own_and_says_what_it_does() {
    let document = fractal_server::openapi();
    let mut names = std::collections::BTreeSet::new();
    let paths = document["paths"].as_object().expect("paths");
    for operation in paths.values().flat_map(|methods| methods.as_object()).flatten() {
        let (method, operation) = operation;
        let name = operation["operationId"].as_str().expect("a name").to_owned();
        assert!(operation["summary"].as_str().is_some_and(|text| !text.is_empty()), "{name}");
        assert!(operation["responses"]["default"].is_object(), "{method} {name}");
        assert!(names.insert(name.clone()), "{name} is there twice");
    }
}
