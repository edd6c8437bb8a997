//! Runs the checker to its end and shows a path for people.

use std::collections::BTreeSet;
use std::fmt::{Debug, Write as _};
use std::hash::Hash;
use std::time::Instant;

use countersign::invariants::Violation;
use stateright::{Checker, HasDiscoveries, Model, Path, Property};

/// A model whose states can be judged.
pub trait Judged: Model + Clone + Send + Sync + 'static
where
    Self::State: Clone + Debug + Hash + PartialEq + Send + Sync,
    Self::Action: Clone + Debug + PartialEq,
{
    /// What is wrong in a state, by the rules of the crate and those of the model.
    fn faults(&self, state: &Self::State) -> Vec<Violation>;
}

/// Explores every state; no rule may be broken, and every `sometimes` must be reachable, or the model says nothing.
pub fn holds<M: Judged>(name: &str, model: M)
where
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync,
    M::Action: Clone + Debug + PartialEq,
{
    let began = Instant::now();
    let properties = model.properties();
    let mut failures = properties.iter().filter(|property| is_always(property)).map(|property| property.name);
    let stop = HasDiscoveries::AnyOf(failures.by_ref().collect());
    let reachable: BTreeSet<&str> = properties.iter().filter(|p| !is_always(p)).map(|p| p.name).collect();
    let checker = model.clone().checker().finish_when(stop).spawn_bfs().join();
    let (states, depth, seconds) = (checker.unique_state_count(), checker.max_depth(), began.elapsed().as_secs_f64());
    println!("{name}: {states} states, {depth} steps deep, {seconds:.1} s");
    let mut reached = BTreeSet::new();
    for (property, path) in checker.discoveries() {
        if reachable.contains(property) {
            reached.insert(property);
        } else {
            panic!("{name}: `{property}` does not hold\n{}", story(&model, path));
        }
    }
    assert_eq!(reached, reachable, "{name}: not all is reachable");
}

/// The checker must find how this rule breaks.
pub fn breaks<M: Judged>(name: &str, model: M, rule: &'static str)
where
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync,
    M::Action: Clone + Debug + PartialEq,
{
    let began = Instant::now();
    let stop = HasDiscoveries::AnyOf(BTreeSet::from([rule]));
    assert!(model.properties().iter().any(|property| property.name == rule), "there is no rule `{rule}`");
    let checker = model.clone().checker().finish_when(stop).spawn_bfs().join();
    let states = checker.unique_state_count();
    let Some(path) = checker.discovery(rule) else {
        panic!("{name}: {states} states, and none in which `{rule}` breaks");
    };
    let seconds = began.elapsed().as_secs_f64();
    println!("{name}: found in {states} states, {seconds:.1} s\n{}", story(&model, path));
}

fn is_always<M: Model>(property: &Property<M>) -> bool {
    matches!(property.expectation, stateright::Expectation::Always)
}

/// One step a line, then the state it led to and what is wrong with it.
fn story<M: Judged>(model: &M, path: Path<M::State, M::Action>) -> String
where
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync,
    M::Action: Clone + Debug + PartialEq,
{
    let mut text = String::new();
    let steps = path.into_vec();
    for (number, action) in steps.iter().filter_map(|(_, action)| action.as_ref()).enumerate() {
        let _ = writeln!(text, "  {:>2}. {action:?}", number + 1);
    }
    if let Some((last, _)) = steps.last() {
        for fault in model.faults(last) {
            let _ = writeln!(text, "   -> {fault}");
        }
        let _ = writeln!(text, "      {last:?}");
    }
    text
}
