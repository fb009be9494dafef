use super::*;
use proptest::prelude::*;

fn id(number: u8) -> Id {
    Id::from_parts(u64::from(number), [number; 10])
}

fn any_scope() -> impl Strategy<Value = Scope> {
    prop_oneof![
        Just(Scope::All),
        "[ab]".prop_map(Scope::Template),
        (1..3u8).prop_map(|number| Scope::Sandbox(id(number))),
    ]
}

fn any_verbs() -> impl Strategy<Value = Option<std::collections::BTreeSet<Verb>>> {
    let verb = prop_oneof![Just(Verb::Run), Just(Verb::Key), Just(Verb::Promote)];
    proptest::option::of(proptest::collection::btree_set(verb, 0..3))
}

prop_compose! {
    fn any_key()(
        allow in any_verbs(),
        pids in proptest::option::of(0..3u64),
        tenant in proptest::option::of("[ab]"),
        scope in any_scope(),
        rate_per_minute in proptest::option::of(0..3u32),
        concurrent in proptest::option::of(0..3u32),
        expires_ms in proptest::option::of(0..3u64),
    ) -> Key {
        let mut policy = Policy { allow, ..Policy::default() };
        policy.limits.pids = pids;
        Key {
            id: id(9), name: "k".to_owned(), role: "r".to_owned(), policy, tenant, scope,
            rate_per_minute, concurrent, created_ms: 0, expires_ms, revoked_ms: None,
        }
    }
}

/// Whether no bound of `a` is looser than that of `b`.
fn tighter<T: Ord>(a: Option<T>, b: Option<T>) -> bool {
    match (a, b) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(a), Some(b)) => a <= b,
    }
}

fn is_within(key: &Key, creator: &Key) -> bool {
    let scope = match (&key.scope, &creator.scope) {
        (_, Scope::All) | (Scope::Sandbox(_), _) => true,
        (own, other) => own == other,
    };
    key.policy.is_within(&creator.policy)
        && (creator.tenant.is_none() || key.tenant == creator.tenant)
        && scope
        && tighter(key.rate_per_minute, creator.rate_per_minute)
        && tighter(key.concurrent, creator.concurrent)
        && tighter(key.expires_ms, creator.expires_ms)
}

proptest! {
    #[test]
    fn a_key_is_within_its_creator_and_within_what_was_asked(
        asked in any_key(), creator in any_key(), above in any_key()
    ) {
        let Ok(key) = asked.clone().bounded_by(&creator) else { return Ok(()) };
        prop_assert!(is_within(&key, &creator));
        prop_assert!(key.policy.is_within(&asked.policy));
        prop_assert!(tighter(key.expires_ms, asked.expires_ms));
        // It cannot be widened by asking again, nor by going through another.
        prop_assert_eq!(key.clone().bounded_by(&creator), Ok(key.clone()));
        if let Ok(middle) = creator.bounded_by(&above)
            && let Ok(lowest) = asked.bounded_by(&middle) {
                prop_assert!(is_within(&lowest, &above));
            }
    }

    #[test]
    fn another_tenant_or_template_is_refused(creator in any_key()) {
        let mut asked = creator.clone();
        asked.tenant = Some("elsewhere".to_owned());
        prop_assert_eq!(asked.bounded_by(&creator).is_err(), creator.tenant.is_some());
        let mut asked = creator.clone();
        asked.scope = Scope::Template("elsewhere".to_owned());
        prop_assert_eq!(asked.bounded_by(&creator).is_err(), creator.scope != Scope::All);
    }
}

#[test]
fn roles_widen_from_viewer_to_admin_and_only_admins_make_keys() {
    let policy = |name| Role::built_in(name).expect("it is built in").policy;
    for (narrow, wide) in [("viewer", "approver"), ("viewer", "runner"), ("runner", "operator")] {
        assert!(policy(narrow).is_within(&policy(wide)), "{narrow} {wide}");
        assert!(!policy(wide).is_within(&policy(narrow)), "{narrow} {wide}");
    }
    for name in ROLE_NAMES {
        assert!(policy(name).is_within(&policy("admin")), "{name}");
        for verb in [Verb::Key, Verb::Audit] {
            assert_eq!(policy(name).allows(verb), name == "admin", "{name} {verb:?}");
        }
        let may_vote = matches!(name, "approver" | "admin");
        assert_eq!(policy(name).allows(Verb::Approve), may_vote, "{name}");
        let may_promote = matches!(name, "operator" | "admin");
        assert_eq!(policy(name).allows(Verb::Promote), may_promote, "{name}");
    }
    assert_eq!(Role::built_in("owner"), None);
}

#[test]
fn a_key_ends_once() {
    let mut key = Key {
        id: id(1),
        name: "k".to_owned(),
        role: "viewer".to_owned(),
        policy: Policy::default(),
        tenant: None,
        scope: Scope::All,
        rate_per_minute: None,
        concurrent: None,
        created_ms: 0,
        expires_ms: Some(10),
        revoked_ms: None,
    };
    assert_eq!((key.ended(9), key.ended(10)), (None, Some("expired")));
    key.revoked_ms = Some(3);
    assert_eq!(key.ended(0), Some("revoked"));
}

#[test]
fn a_secret_is_not_shown_in_messages() {
    let json = r#"{"secret":"frk_x","id":"00000000000000000000000000","name":"k","role":"r",
        "policy":{},"created_ms":1}"#;
    let made: KeyMade = serde_json::from_str(json).expect("it reads");
    assert!(!format!("{made:?}").contains("frk_"));
    assert_eq!(made.key.scope, Scope::All);
}
