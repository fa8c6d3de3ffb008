/** Ids as text in JSON: JavaScript's numbers hold 53 bits. {@link io.keymill.json.AsText} says which fields. */
package io.keymill.json;
