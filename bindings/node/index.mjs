// One implementation for both module systems: two would be two sets of cursors.
import './unbundled.mjs'
import keymill from './dist/index.js'

export const { KeymillError, AnySource, Business, Mill, NumberSource, OrderNumbers, Router, Serial, Shards, Source, gene, lazy, open, openAsync, shared, storeOf, use, version } = keymill
