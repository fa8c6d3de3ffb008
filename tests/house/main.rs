//! What is said in more than one place is the same in each; modules stand on their floors; dependencies are those that may be.

mod dependencies;
mod floors;
mod one_definition;
