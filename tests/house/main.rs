//! What is said in more than one place is the same in each; modules stand on their floors.

mod documents;
mod floors;
mod names;
mod one_definition;
mod verbs;
