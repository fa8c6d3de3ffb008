//! Binds the natives to the classes of another class loader: one library serves all class loaders of a JVM.
//!
//! The JVM binds a native by its name only in the libraries that its class loader has loaded, and a library belongs to one class loader. So
//! `Library.java` keeps the address of `bind`, and a class loader that comes later calls it through a few bytes of its own.

use std::ffi::{CStr, c_void};

use jni::EnvUnowned;
use jni::objects::JClass;
use jni::sys::{JNIEnv, JNINativeMethod, jclass, jint, jlong};

/// `long binder()`: the address of [`bind`].
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_Native_binder(_: EnvUnowned<'_>, _: JClass<'_>) -> jlong {
    bind as *const () as jlong
}

/// Binds the natives of one class, which the class loader of the calling method finds. Says whether it could; an exception is pending if not.
fn bind_class(env: *mut JNIEnv, class: &CStr, natives: &[JNINativeMethod]) -> bool {
    // SAFETY: the JVM passed `env` to the native that this runs in, on this thread; the names end with a zero.
    unsafe {
        let class = ((**env).v1_2.FindClass)(env, class.as_ptr());
        !class.is_null()
            && ((**env).v1_2.RegisterNatives)(env, class, natives.as_ptr(), natives.len() as jint) == 0
    }
}

/// For each class its natives: name, descriptor, function. A test compares them with those that the classes declare.
macro_rules! natives {
    ($($class:literal { $($name:literal, $descriptor:literal, $function:ident;)* })*) => {
        /// `int bind(long address)`: how many natives are bound; 0 where one cannot be, with an exception pending.
        extern "system" fn bind(env: *mut JNIEnv, _: jclass, _: jlong) -> jint {
            // The functions with these names are in the other modules; here only their addresses count.
            unsafe extern "system" {
                $($(fn $function();)*)*
            }
            let mut bound = 0;
            $({
                let natives = [$(JNINativeMethod {
                    name: $name.as_ptr().cast_mut(),
                    signature: $descriptor.as_ptr().cast_mut(),
                    fnPtr: $function as *const () as *mut c_void,
                }),*];
                if !bind_class(env, $class, &natives) {
                    return 0;
                }
                bound += natives.len() as jint;
            })*
            bound
        }
    };
}

natives! {
    c"io/keymill/MillBox" {
        c"open", c"([B)J", Java_io_keymill_MillBox_open;
        c"free", c"(J)V", Java_io_keymill_MillBox_free;
        c"source", c"(J[B[B)J", Java_io_keymill_MillBox_source;
        c"router", c"(J[B)J", Java_io_keymill_MillBox_router;
        c"close", c"(J)V", Java_io_keymill_MillBox_close;
        c"isClosed", c"(J)Z", Java_io_keymill_MillBox_isClosed;
        c"metrics", c"(J)Ljava/lang/String;", Java_io_keymill_MillBox_metrics;
        c"events", c"(J)Ljava/lang/String;", Java_io_keymill_MillBox_events;
        c"store", c"(J)Ljava/lang/String;", Java_io_keymill_MillBox_store;
        c"init", c"(J[BZ)Ljava/lang/String;", Java_io_keymill_MillBox_init;
        c"advanceClock", c"(JJ)V", Java_io_keymill_MillBox_advanceClock;
        c"setClock", c"(JJ)V", Java_io_keymill_MillBox_setClock;
    }
    c"io/keymill/Native" {
        c"version", c"()Ljava/lang/String;", Java_io_keymill_Native_version;
        c"codes", c"()Ljava/lang/String;", Java_io_keymill_Native_codes;
        c"spec", c"([B[B[B)Ljava/lang/String;", Java_io_keymill_Native_spec;
        c"storeOf", c"([B[B)Ljava/lang/String;", Java_io_keymill_Native_storeOf;
        c"address", c"(Ljava/nio/ByteBuffer;)J", Java_io_keymill_Native_address;
        c"word", c"(J)Ljava/nio/ByteBuffer;", Java_io_keymill_Native_word;
        c"binder", c"()J", Java_io_keymill_Native_binder;
        c"notifier", c"()J", Java_io_keymill_Native_notifier;
        c"awaitNews", c"(JJ)[J", Java_io_keymill_Native_awaitNews;
        c"tell", c"(JJ)V", Java_io_keymill_Native_tell;
    }
    c"io/keymill/OrderNumbers" {
        c"open", c"([B[B[B)J", Java_io_keymill_OrderNumbers_open;
        c"fromEnv", c"([B[B)J", Java_io_keymill_OrderNumbers_fromEnv;
        c"fromKeys", c"([B[BB[B[B)J", Java_io_keymill_OrderNumbers_fromKeys;
        c"free", c"(J)V", Java_io_keymill_OrderNumbers_free;
        c"withVersion", c"(JB)J", Java_io_keymill_OrderNumbers_withVersion;
        c"version", c"(J)I", Java_io_keymill_OrderNumbers_version;
        c"seal", c"(JJ[B)V", Java_io_keymill_OrderNumbers_seal;
        c"unseal", c"(J[B)J", Java_io_keymill_OrderNumbers_unseal;
        c"sealWide", c"(J[B[B)V", Java_io_keymill_OrderNumbers_sealWide;
        c"unsealWide", c"(J[B[B)V", Java_io_keymill_OrderNumbers_unsealWide;
        c"seal8", c"(JJ)J", Java_io_keymill_OrderNumbers_seal8;
        c"unseal8", c"(JJ)J", Java_io_keymill_OrderNumbers_unseal8;
        c"sealAll", c"(J[J[B)V", Java_io_keymill_OrderNumbers_sealAll;
        c"unsealAll", c"(J[B[J)V", Java_io_keymill_OrderNumbers_unsealAll;
        c"seal8All", c"(J[J[J)V", Java_io_keymill_OrderNumbers_seal8All;
        c"unseal8All", c"(J[J[J)V", Java_io_keymill_OrderNumbers_unseal8All;
        c"sealText", c"(JJ)Ljava/lang/String;", Java_io_keymill_OrderNumbers_sealText;
        c"unsealText", c"(J[B)J", Java_io_keymill_OrderNumbers_unsealText;
        c"sealWideText", c"(J[B)Ljava/lang/String;", Java_io_keymill_OrderNumbers_sealWideText;
        c"unsealWideText", c"(J[B[B)V", Java_io_keymill_OrderNumbers_unsealWideText;
        c"seal8Text", c"(JJ)Ljava/lang/String;", Java_io_keymill_OrderNumbers_seal8Text;
        c"unseal8Text", c"(J[B)J", Java_io_keymill_OrderNumbers_unseal8Text;
    }
    c"io/keymill/RouterBox" {
        c"gene", c"(J)I", Java_io_keymill_RouterBox_gene;
        c"geneOfText", c"([B)I", Java_io_keymill_RouterBox_geneOfText;
        c"open", c"([B)J", Java_io_keymill_RouterBox_open;
        c"fromText", c"([B)J", Java_io_keymill_RouterBox_fromText;
        c"free", c"(J)V", Java_io_keymill_RouterBox_free;
        c"load", c"(J[B)Z", Java_io_keymill_RouterBox_load;
        c"route", c"(JJ[J)V", Java_io_keymill_RouterBox_route;
        c"routeBytes", c"(J[B[J)V", Java_io_keymill_RouterBox_routeBytes;
        c"isCurrent", c"(JI[B[B)Z", Java_io_keymill_RouterBox_isCurrent;
        c"routeKey", c"(JJ[J)V", Java_io_keymill_RouterBox_routeKey;
        c"routeText", c"(J[B[J)V", Java_io_keymill_RouterBox_routeText;
        c"routeOrderNo", c"(J[B[J)V", Java_io_keymill_RouterBox_routeOrderNo;
        c"routeOrderNo8", c"(JJ[J)V", Java_io_keymill_RouterBox_routeOrderNo8;
        c"routeOrderNoText", c"(J[B[J)V", Java_io_keymill_RouterBox_routeOrderNoText;
        c"name", c"(JI)Ljava/lang/String;", Java_io_keymill_RouterBox_name;
        c"version", c"(J)J", Java_io_keymill_RouterBox_version;
        c"age", c"(J)J", Java_io_keymill_RouterBox_age;
        c"shards", c"(J[B[BJ)J", Java_io_keymill_RouterBox_shards;
    }
    c"io/keymill/ShardsBox" {
        c"free", c"(J)V", Java_io_keymill_ShardsBox_free;
        c"begin", c"(JJZ)J", Java_io_keymill_ShardsBox_begin;
        c"beginBytes", c"(J[BZ)J", Java_io_keymill_ShardsBox_beginBytes;
        c"next", c"(JI[B)J", Java_io_keymill_ShardsBox_next;
        c"text", c"(J)[B", Java_io_keymill_ShardsBox_text;
        c"end", c"(J)V", Java_io_keymill_ShardsBox_end;
    }
    c"io/keymill/SourceBox" {
        c"tryLease", c"(JJJJJ)J", Java_io_keymill_SourceBox_tryLease;
        c"giveBack", c"(JJJJJ)V", Java_io_keymill_SourceBox_giveBack;
        c"tryId", c"(JJ)J", Java_io_keymill_SourceBox_tryId;
        c"tryIdFor", c"(JJJ)J", Java_io_keymill_SourceBox_tryIdFor;
        c"tryIdForText", c"(J[BJ)J", Java_io_keymill_SourceBox_tryIdForText;
        c"tryWide", c"(JJ[BJ[B)J", Java_io_keymill_SourceBox_tryWide;
        c"ask", c"(JI)J", Java_io_keymill_SourceBox_ask;
        c"askFor", c"(JJ[BIZ)J", Java_io_keymill_SourceBox_askFor;
        c"collectWide", c"(J[B)V", Java_io_keymill_SourceBox_collectWide;
        c"register", c"(JIJJ)J", Java_io_keymill_SourceBox_register;
        c"unregister", c"(J)V", Java_io_keymill_SourceBox_unregister;
        c"poll", c"(J)J", Java_io_keymill_SourceBox_poll;
        c"pollOrRegister", c"(JJJ)J", Java_io_keymill_SourceBox_pollOrRegister;
        c"collect", c"(J[J)V", Java_io_keymill_SourceBox_collect;
        c"forget", c"(J)V", Java_io_keymill_SourceBox_forget;
        c"parse", c"(J[B)Ljava/lang/String;", Java_io_keymill_SourceBox_parse;
        c"parseNumber", c"(J[B)Ljava/lang/String;", Java_io_keymill_SourceBox_parseNumber;
        c"parseBytes", c"(J[B)Ljava/lang/String;", Java_io_keymill_SourceBox_parseBytes;
        c"stats", c"(J)Ljava/lang/String;", Java_io_keymill_SourceBox_stats;
        c"facts", c"(J)Ljava/lang/String;", Java_io_keymill_SourceBox_facts;
        c"form", c"(J)Ljava/lang/String;", Java_io_keymill_SourceBox_form;
        c"refuse", c"(J)V", Java_io_keymill_SourceBox_refuse;
        c"refusalOfKeys", c"(J[BJJ)Ljava/lang/String;", Java_io_keymill_SourceBox_refusalOfKeys;
    }
}
