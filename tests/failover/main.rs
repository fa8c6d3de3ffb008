//! Several servers, one of which is the primary: failover, replicas, clusters, encrypted connections. Each test starts its own
//! servers, except `galera`, `mysql_group` and `patroni`, whose clusters the scripts of `ci/servers` start. `proxies` has a HAProxy
//! in front of them, which `ci/steps/proxies` unpacks.

mod cluster;
mod galera;
mod logins;
mod mariadb;
mod mysql_group;
mod patroni;
mod postgres;
mod proxies;
mod replicas;
mod sentinel;
mod tls;
mod tls_mariadb;
