//! What is said in more than one place is the same in each; modules stand on their floors; the page for database
//! administrators is right.

mod floors;
mod one_definition;
mod page;
