//! Several servers, one of which is the primary: failover, replicas, clusters, encrypted connections. Each test starts its own
//! servers, except `galera`, whose cluster `ci/servers/galera run` starts.

mod galera;
mod logins;
mod mariadb;
mod postgres;
mod replicas;
mod sentinel;
mod tls;
mod tls_mariadb;
