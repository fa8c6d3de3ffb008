//! What is said in more than one place is the same in each; modules stand on their floors; every feature meets every adversary.

mod adversaries;
mod advice;
mod documents;
mod floors;
mod language;
mod literals;
mod messages;
mod names;
mod one_definition;
mod proofs;
mod verbs;
