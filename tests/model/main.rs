//! Models of the protocol: every interleaving of two workers, with crashes, answers that are lost, a gate that forgets
//! or comes back old, and a database that goes back in time, within a budget of faults.
//!
//! The models call the crate's own decisions (where a lane starts, which mark counts, what is first and what is a
//! duplicate, who owns a lane), and the rules that must hold in every state are those of `countersign::invariants`.
//! Each rule of the protocol that an interleaving rests on can be left out: the checker must then find that
//! interleaving, or the model would prove nothing.
#![allow(clippy::unwrap_used)]

mod explore;
mod gate;
mod gate_actions;
mod gate_tests;
mod lanes;
mod outbox;
mod pure;
mod records;
mod slices;
