/** What keymill's modules for frameworks share; not for applications, and may change with every version. */
package io.keymill.support;
