// Runs what the documents show: each block marked `<!-- run: FILE -->`, as it stands.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { createRequire } from 'node:module'
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { test } from 'node:test'
import { scratch } from './support.mjs'

const home = dirname(createRequire(import.meta.url).resolve('keymill/package.json'))
const documents = [join(home, 'README.md')]
for (const file of ['README.md', 'docs/languages/node.md', 'docs/testing.md', 'docs/operations/monitoring.md']) documents.push(join(process.env.KEYMILL_ROOT, file))
const blocks = documents.flatMap((file) => [...readFileSync(file, 'utf8').matchAll(/<!-- run: (\S+) -->\n```js\n([^]*?)```/g)])

const says = {
  'start.mjs': /^1n\n2n\n\d{8}000001\n$/,
  'first.mjs': /^1n \d{8}000001\n$/,
  'verbs.mjs': /time: \d{4}-.*worker: 5.*\n\d+\nord_\w{13} ord_\w{13}\n\d+ \d+\n\[\n.*store_created.*\n\]\nINVALID_CONFIG\n$/,
  'declared.mjs': /^1n \[ 2n, 3n \] 4n 1\n$/,
  'sales.mjs': /^{ gene: 56443, number: 1n }\n56443\n$/,
  'router.mjs': /^{[^]*gene: 56443,[^]*shard: 's2',[^]*version: 7[^]*}\n$/,
  'numbers.mjs': /^$/,
  'server.mjs': /^{"id":"1"}\n$/,
  'in_a_test.mjs': /pass 2\n/,
  'metrics.mjs': /^keymill_refills_failed_total 0$/m,
}

test('the documents have the examples that are run', () => assert.deepEqual(blocks.map(([, name]) => name), Object.keys(says)))

for (const [, name, code] of blocks) {
  test(`the documents' ${name} runs as it stands`, () => {
    const folder = scratch()
    mkdirSync(join(folder, 'node_modules'))
    symlinkSync(home, join(folder, 'node_modules', 'keymill'))
    writeFileSync(join(folder, name), code)
    const env = { ...process.env }
    delete env.KEYMILL_CONFIG
    // The runner of this test would take the example's report for a part of its own.
    delete env.NODE_TEST_CONTEXT
    assert.match(execFileSync(process.execPath, [name], { cwd: folder, encoding: 'utf8', env }), says[name])
  })
}
