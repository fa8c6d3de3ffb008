//! Several servers, one of which is the primary: failover, replicas, clusters, encrypted connections. Each test starts its own
//! servers, except `galera` and `mysql_group`, whose clusters `ci/servers/galera run` and `ci/servers/mysql-group run` start.

mod cluster;
mod galera;
mod logins;
mod mariadb;
mod mysql_group;
mod postgres;
mod replicas;
mod sentinel;
mod tls;
mod tls_mariadb;
