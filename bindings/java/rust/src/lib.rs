//! keymill for Java: translations of the core's verbs, and nothing else.
//!
//! * `call`: how a call comes in and how an error becomes a `KeymillException`.
//! * `held`: boxes that Java owns.
//! * `mill`, `source`, `business`: the verbs, as natives of `io.keymill.MillBox` and `io.keymill.SourceBox`.
//! * `waiters`: natives for `io.keymill.Waiters`, and how a caller of a `SourceBox` registers for news.
//! * `router`, `order_numbers`: natives of `io.keymill.RouterBox` and `io.keymill.OrderNumbers`.
//! * `shards`: natives of `io.keymill.ShardsBox`: writes over the connections of Java.
//! * `natives`: binds all of them for the class loaders that come later.
//! * `library`: natives of `io.keymill.Native`, which belong to no mill.
//!
//! **What keeps memory alive.** A Java object holds the address of a box made here. Its natives are instance methods, so
//! the caller's frame keeps the object reachable while the call runs, and boxes are freed only after the collector found
//! the object unreachable (`MillBox`'s reference queue). The address comes as an argument: reading the field would cost
//! a call into the JVM.
//!
//! **What a call costs.** The natives that refill touch no `JNIEnv` unless they fail: they write into a small direct buffer
//! whose address Java passes.

#[cfg(panic = "abort")]
compile_error!("build with panic=unwind: a panic must become an exception, not the end of the JVM");

mod business;
mod call;
mod held;
mod library;
mod mill;
mod natives;
mod order_numbers;
mod router;
mod shards;
mod source;
mod waiters;
