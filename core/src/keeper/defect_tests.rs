//! Tests of a keeper whose own code panics: callers hear of it at once, and the mill goes on.
//!
//! The store stands without its guard here, so its scripted panic passes through the keeper's code as a defect of its own would.

use std::sync::Arc;
use std::time::Duration;

use crossbeam::channel;

use super::closing::Closing;
use super::executor::{Command, Executor, Health};
use super::followers::Followers;
use super::own_readers::OwnReaders;
use super::routers::Routers;
use super::{Keeper, KeptSource};
use crate::callers::waker::ReadyQueue;
use crate::config::MillConfig;
use crate::engine::metrics;
use crate::error::Code;
use crate::monitoring::events::Events;
use crate::monitoring::mill_counters::MillCounters;
use crate::spec::Spec;
use crate::store::memory::{Memory, MemoryStore, Step};
use crate::time::Clock;

struct Scene {
    memory: Arc<Memory>,
    ready: Arc<ReadyQueue>,
    commands: channel::Sender<Command>,
    counters: Arc<MillCounters>,
    events: Arc<Events>,
    thread: Option<std::thread::JoinHandle<()>>,
}

fn spec(text: &str) -> Arc<Spec> {
    Arc::new(MillConfig::parse("memory:").and_then(|config| config.spec(text)).expect("a spec"))
}

impl Scene {
    fn new() -> Scene {
        Scene::of(|_| ())
    }

    fn of(change: impl FnOnce(&mut Keeper)) -> Scene {
        let memory = Memory::new();
        let ready = Arc::new(ReadyQueue::default());
        let mut keeper = Keeper::new(1, ready.clone());
        change(&mut keeper);
        let (commands, inbox) = channel::unbounded();
        let (counters, events) = (Arc::<MillCounters>::default(), Arc::new(Events::new()));
        let executor = Executor {
            keeper,
            store: Some((Box::new(MemoryStore::new(memory.clone())) as Box<dyn crate::store::Store>).into()),
            clock: Clock::System,
            commands: inbox,
            counters: counters.clone(),
            events: events.clone(),
            health: Health::default(),
            followers: Followers::new(OwnReaders::new(10_000, "test".into()), Arc::default()),

            expiry: None,
        };
        let thread = crate::process::thread::spawn("keeper", move || executor.run()).expect("a thread");
        ready.set_keeper(thread.thread().clone());
        Scene { memory, ready, commands, counters, events, thread: Some(thread) }
    }

    fn open(&self, index: usize, text: &str) -> KeptSource {
        let source = KeptSource::new(spec(text), self.ready.clone(), index, Clock::System).expect("a source");
        self.say(Command::Add(source.clone()));
        source
    }

    fn say(&self, command: Command) {
        self.commands.send(command).expect("a keeper that lives");
        self.ready.unpark();
    }

    fn closes(&self) {
        let (closing, wait) = Closing::begin();
        self.say(Command::Close(closing));
        wait.recv_timeout(Duration::from_secs(20)).expect("the keeper closes");
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = self.commands.send(Command::Close(Closing::begin().0));
            self.ready.unpark();
            thread.join().expect("the keeper never panics out of its thread");
        }
    }
}

#[test]
fn callers_hear_of_a_defect_at_once_and_the_keeper_goes_on() {
    let scene = Scene::new();
    let orders = scene.open(0, "segment:orders?deadline=20s&step=10");
    let other = scene.open(1, "segment:other?deadline=20s");
    assert_eq!(orders.next().unwrap(), 1);
    assert_eq!(other.next().unwrap(), 1);
    scene.memory.fail_next(Step::Panic);
    // More than memory holds: the keeper has to go to the store.
    let error = loop {
        if let Err(error) = orders.next() {
            break error;
        }
    };
    assert_eq!(error.code, Code::Internal, "{error}");
    assert!(error.message.contains("scripted to panic"), "{error}");
    assert!(error.retry_after.is_some());
    // A range reserved by the panicking call is never used; everything else goes on.
    let mut got = Vec::new();
    while got.len() < 100 {
        match orders.next() {
            Ok(id) => got.push(id),
            Err(error) => {
                assert_eq!(error.code, Code::Internal, "{error}");
                std::thread::sleep(error.retry_after.unwrap());
            }
        }
    }
    assert!(got.is_sorted_by(|a, b| a < b) && got[0] > 10, "{got:?}");
    let text = metrics::render(&scene.counters, &[], &Routers::default());
    assert!(text.contains("keymill_keeper_restarts_total 1\n"), "{text}");
    assert!(
        scene
            .events
            .drain()
            .iter()
            .any(|event| event.kind == crate::monitoring::events::EventKind::KeeperRestarted)
    );
    scene.closes();
    assert_eq!(other.next().unwrap_err().code, Code::Closed);
}

#[test]
fn a_keeper_that_went_on_still_knows_how_far_each_row_had_come() {
    let scene = Scene::new();
    let orders = scene.open(0, "segment:orders?deadline=60s&step=10");
    let mut last = 0;
    while last < 10 {
        last = orders.next().unwrap();
    }
    let spec = spec("segment:orders");
    let backup = scene.memory.snapshot();
    scene.memory.fail_next(Step::Panic);
    while orders.next().is_ok() {}
    // A backup is put back behind the keeper that has just begun anew: its numbers were issued.
    scene.memory.restore(&backup);
    assert!(scene.memory.delete_row(&spec.key));
    let error = loop {
        match orders.next() {
            Ok(id) => assert!(id > last, "{id} was issued before"),
            Err(error) if error.code == Code::Internal => {
                std::thread::sleep(error.retry_after.unwrap_or_default());
            }
            Err(error) => break error,
        }
    };
    assert_eq!(error.code, Code::StoreWentBackwards, "{error}");
}

#[test]
fn a_keeper_that_panics_repeatedly_pauses_in_between_and_can_be_closed() {
    let scene = Scene::new();
    let orders = scene.open(0, "segment:orders?deadline=20s");
    scene.memory.script(vec![Step::Panic; 1000]);
    for _ in 0..4 {
        let error = orders.next().unwrap_err();
        assert_eq!(error.code, Code::Internal, "{error}");
        std::thread::sleep(error.retry_after.unwrap());
    }
    scene.closes();
    assert_eq!(orders.next().unwrap_err().code, Code::Closed);
}

#[test]
fn a_snowflake_goes_on_above_its_mark_after_a_defect() {
    let scene = Scene::new();
    let flakes = scene.open(0, "snowflake:tx?worker=5&deadline=20s");
    let before = flakes.next().unwrap();
    scene.memory.fail_next(Step::Panic);
    // Another source makes the keeper go to the store.
    let orders = scene.open(1, "segment:orders?deadline=20s");
    assert_eq!(orders.next().unwrap_err().code, Code::Internal);
    let after = loop {
        match flakes.next() {
            Ok(id) => break id,
            Err(error) => {
                assert_eq!(error.code, Code::Internal, "{error}");
                std::thread::sleep(error.retry_after.unwrap_or_default());
            }
        }
    };
    assert!(after > before);
}

#[test]
fn a_source_whose_check_panics_each_time_keeps_no_other_source_waiting() {
    let scene = Scene::of(|keeper| keeper.panics_on = Some(1));
    let sources = [0, 1, 2].map(|index| scene.open(index, &format!("segment:s{index}?deadline=20s&step=10")));
    let [first, broken, last] = &sources;
    for _ in 0..5 {
        assert_eq!(broken.next().unwrap_err().code, Code::Internal);
        // Each of these ids needs the store.
        for source in [first, last] {
            let mut errors = 0;
            for _ in 0..20 {
                while let Err(error) = source.next() {
                    assert_eq!(error.code, Code::Internal, "{error}");
                    errors += 1;
                    assert!(errors < 20, "{error}");
                    std::thread::sleep(error.retry_after.unwrap());
                }
            }
        }
    }
    scene.closes();
    assert_eq!(broken.next().unwrap_err().code, Code::Closed);
}
