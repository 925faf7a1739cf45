use super::*;

fn two_members(world: &mut World) {
    world.up(1, A);
    world.up(2, B);
    world.effects();
}

#[test]
fn the_same_process_behind_a_new_guid_is_an_alias() {
    let mut world = World::new();
    world.up(1, A);
    assert!(world.ready(A, "run-1"));
    world.up(2, A);
    world.events();
    world.effects();
    let broker = world.at(A);
    world.run(|fleet, cx| fleet.on_identity(broker, true, cx));
    assert_eq!((world.effects(), world.events()), (String::new(), String::new()));
    world.run(|fleet, cx| fleet.on_identity(broker, false, cx));
    assert_eq!((world.effects().as_str(), world.events().as_str()), ("Restarted(b0.0)", "A@2 Restarted"));
    world.unready(A, UnreadyReason::Closed);
    world.events();
    assert!(world.ready(A, "run-2"));
    assert_eq!(world.events(), "A@2 Ready", "the restart has been told");
}

#[test]
fn another_process_after_a_reconnect_is_a_restart() {
    let mut world = World::new();
    world.up(1, A);
    assert!(world.ready(A, "run-1"));
    world.unready(A, UnreadyReason::Closed);
    world.events();
    assert!(world.ready(A, "run-2"));
    assert_eq!(world.events(), "A@1 Restarted, A@1 Ready");
}

#[test]
fn two_addresses_of_one_process_are_one_broker() {
    let mut world = World::new();
    two_members(&mut world);
    assert!(world.ready(A, "run-1"));
    world.events();
    let later = world.at(B);
    assert!(!world.ready(B, "run-1"));
    assert_eq!(world.effects(), "Forget(b1.0)");
    assert!(world.fleet.is_leaving(later));
    world.forget(later);
    assert_eq!(world.events(), "B@2 Ready, B@2 Forgotten");
    assert_eq!(world.members(), "A@1 (alternative 10.0.4.13:6379)");
    // What was announced for the later one now speaks for the earlier one.
    world.up(2, B);
    world.up(2, C);
    assert_eq!(world.members(), "A@1 (alternative 10.0.4.13:6379) (alternative 10.0.4.14:6379)");
    assert_eq!(world.fleet.members.len(), 1);
}

#[test]
fn the_earlier_member_stays_whichever_is_ready_first() {
    let mut world = World::new();
    two_members(&mut world);
    let (earlier, later) = (world.at(A), world.at(B));
    assert!(world.ready(B, "run-1"));
    assert!(world.ready(A, "run-1"));
    assert_eq!(world.effects(), "Forget(b1.0)");
    world.forget(later);
    assert_eq!((world.members().as_str(), world.at(A)), ("A@1 (alternative 10.0.4.13:6379)", earlier));
}

#[test]
fn an_earlier_member_that_does_not_answer_moves_to_the_address_that_does() {
    let mut world = World::new();
    two_members(&mut world);
    assert!(world.ready(A, "run-1"));
    world.unready(A, UnreadyReason::Closed);
    assert!(!world.ready(B, "run-1"));
    assert_eq!(world.effects(), "Forget(b1.0), Moved(b0.0)");
    let later = BrokerId::from_parts(1, 0);
    world.forget(later);
    assert_eq!(world.members(), "B@2 (alternative 10.0.4.12:6379)");
}

#[test]
fn what_two_members_bring_together_stays_within_the_limit() {
    let mut world = World::with(|config| config.limits.alternatives = 1);
    for (guid, address, seconds) in [(1, A, "60"), (1, C, "2"), (2, B, "60"), (2, "10.0.4.15:6379", "1")] {
        world.up_every(guid, address, seconds);
    }
    assert!(world.ready(A, "run-1"));
    assert!(!world.ready(B, "run-1"));
    world.forget(BrokerId::from_parts(1, 0));
    assert_eq!(world.members(), "A@1 (alternative 10.0.4.13:6379)", "the longest-lived stays");
    model::check(&world);
}

#[test]
fn a_departed_member_returns_when_its_process_is_met_at_another_address() {
    let mut world = World::new();
    world.up(1, A);
    assert!(world.ready(A, "run-1"));
    world.down(1, A);
    world.up(2, B);
    world.effects();
    assert!(!world.ready(B, "run-1"));
    assert_eq!(world.effects(), "Forget(b1.0), Rejoined(b0.0), Moved(b0.0)");
    world.forget(BrokerId::from_parts(1, 0));
    assert_eq!(world.members(), "B@2");
    assert_eq!(world.fleet.index.lens(), (1, 1, 0));
}

#[test]
fn configured_addresses_of_one_process_stay_configured() {
    let mut world = World::with(|config| {
        config.brokers = [A, B].iter().map(|address| address.parse().expect("an endpoint")).collect();
    });
    assert!(world.ready(A, "run-1"));
    assert!(!world.ready(B, "run-1"));
    world.forget(BrokerId::from_parts(1, 0));
    assert_eq!(world.members(), "A@- (alternative 10.0.4.13:6379)");
    world.pass_ms(1_000_000);
    world.effects();
    world.unready(A, UnreadyReason::Refused);
    world.pass_ms(3_000);
    assert_eq!(
        (world.effects().as_str(), world.members().as_str()),
        ("Moved(b0.0)", "B@- (alternative 10.0.4.12:6379)")
    );
}

#[test]
fn one_guid_of_two_processes_is_two_brokers_and_a_warning() {
    let mut world = World::new();
    two_members(&mut world);
    world.up(1, B);
    assert!(world.ready(A, "run-1"));
    world.events();
    assert!(world.ready(B, "run-2"));
    assert!(world.ready(B, "run-2"));
    assert_eq!(world.events(), "B@1 Ready, @1 shared by A B", "told once");
    assert_eq!(world.members(), "A@1, B@1");
}

#[test]
fn an_alternative_with_another_process_becomes_a_member_of_its_own() {
    let mut world = World::new();
    world.up_every(1, A, "60");
    world.up_every(1, B, "60");
    assert!(world.ready(A, "run-1"));
    world.unready(A, UnreadyReason::Closed);
    world.pass_ms(3_000);
    world.effects();
    world.events();
    assert!(world.ready(B, "run-2"));
    assert_eq!((world.effects().as_str(), world.members().as_str()), ("Joined(b1.0)", "A@1, B@1"));
    assert!(world.ready(A, "run-1"));
    assert_eq!(world.events(), "B@1 Ready, A@1 Announced, A@1 Ready, @1 shared by B A");
    assert_eq!(world.fleet.index.by_guid(guid_of(1)), Some(world.at(A)), "who heard it first");
}

#[test]
fn a_server_without_a_run_id_is_nobodys_twin() {
    for run in ["", &"x".repeat(65)] {
        let mut world = World::new();
        two_members(&mut world);
        assert!(world.ready(A, run));
        assert!(world.ready(B, run));
        assert_eq!(world.members(), "A@1, B@2");
    }
}
