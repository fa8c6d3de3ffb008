import 'reflect-metadata'
import assert from 'node:assert/strict'
import { afterEach, test } from 'node:test'
import { Controller, Get, Injectable, Module } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { HealthCheckService, TerminusModule } from '@nestjs/terminus'
import { lazy, Mill, use, type NumberSource, type Serial, type Source } from 'keymill'
import { InjectSource, KeymillHealthIndicator, KeymillModule, type KeymillModuleOptions } from 'keymill/nest'
import { blackHole, file, loopGoesOn, rejection } from './support.js'

afterEach(() => use(null))

@Injectable()
class Orders {
  constructor(
    @InjectSource('orders') readonly orders: Source,
    @InjectSource('serial:orders/no', { number: '000000' }) readonly numbers: Serial,
    readonly mill: Mill,
  ) {}
  @InjectSource('snowflake:web', { layout: 'js53', worker: 5, as: 'number' }) readonly web!: NumberSource
}

@Controller()
class Shop {
  constructor(
    readonly orders: Orders,
    readonly health: HealthCheckService,
    readonly keymill: KeymillHealthIndicator,
  ) {}
  @Get('id') async id() {
    return { id: String(await this.orders.orders.nextAsync()) }
  }
  @Get('health') check() {
    return this.health.check([() => this.keymill.isHealthy('keymill')])
  }
}

function application(options: KeymillModuleOptions | string) {
  @Module({ imports: [KeymillModule.forRoot(options), TerminusModule], controllers: [Shop], providers: [Orders] })
  class App {}
  return NestFactory.create(App, { logger: false, abortOnError: false })
}

test('sources are injected by their names, and an id comes by HTTP', async () => {
  const app = await application(`sqlite:${file('ids.db')}`)
  await app.listen(0, '127.0.0.1')
  const url = await app.getUrl()
  assert.deepEqual(await (await fetch(`${url}/id`)).json(), { id: '1' })
  const orders = app.get(Orders)
  assert.match(orders.numbers.next(), /^\d{14}$/)
  assert.equal(typeof orders.web.next(), 'number')
  assert.equal(lazy('segment:orders')(), 2n, 'lazy sources take from the application’s mill')
  const health = await (await fetch(`${url}/health`)).json()
  assert.deepEqual(health.details, { keymill: { status: 'up' } })
  await app.close()
  assert.ok(orders.mill.closed)
  assert.throws(() => lazy('segment:orders')(), { code: 'CLOSED' })
})

test('options may come later, from another module', async () => {
  const config = `sqlite:${file('ids.db')}`
  @Module({ providers: [{ provide: 'CONFIG', useValue: config }], exports: ['CONFIG'] })
  class Configuration {}
  @Module({ imports: [KeymillModule.forRootAsync({ imports: [Configuration], inject: ['CONFIG'], useFactory: async (found: string) => ({ config: found }) })], providers: [Orders] })
  class App {}
  const app = await NestFactory.createApplicationContext(App, { logger: false })
  assert.equal(await app.get(Orders).orders.nextAsync(), 1n)
  await app.close()
  assert.ok(app.get(Orders).mill.closed)
})

test('an application starts without its store, its health says why it has no ids, and its event loop goes on', async (t) => {
  const hole = await blackHole()
  t.after(hole.end)
  const app = await application(`mysql://app:hush@127.0.0.1:${hole.port}/ids?tls=off&connect_timeout=200ms`)
  await app.listen(0, '127.0.0.1')
  const url = await app.getUrl()
  await loopGoesOn(t, async () => assert.equal((await fetch(`${url}/id`)).status, 500))
  const health = await fetch(`${url}/health`)
  const told = await health.text()
  assert.equal(health.status, 503, told)
  assert.match(told, /"keymill":\{"status":"down","segment:orders":"/)
  assert.ok(!told.includes('hush'), told)
  await app.close()
})

test('a source that is down is asked for an id by its health, once at a time', async () => {
  let asked = 0
  let answer = (): void => {}
  const source = {
    stats: () => ({ source: 'segment:orders', left: 0, ...(asked < 2 && { refusal: 'away' }) }),
    nextAsync: () => new Promise<void>((done) => (asked++, (answer = done))),
  }
  const health = new KeymillHealthIndicator([source] as never)
  for (let probe = 0; probe < 3; probe++) assert.equal(health.isHealthy().keymill.status, 'down')
  assert.equal(asked, 1)
  answer()
  await new Promise(setImmediate)
  assert.equal(health.isHealthy().keymill.status, 'down')
  assert.equal(asked, 2)
  assert.equal(health.isHealthy().keymill.status, 'up')
})

test('a module that names no mill, and an option that there is not, stop the start', async () => {
  const before = process.env.KEYMILL_CONFIG
  delete process.env.KEYMILL_CONFIG
  try {
    for (const options of [{}, { config: undefined }]) {
      const error = await rejection(() => application(options))
      assert.equal(error.code, 'INVALID_CONFIG')
      assert.match(error.message, /names no mill, and KEYMILL_CONFIG is not set; write forRoot/)
    }
    assert.match((await rejection(() => application({ confg: 'memory:' } as KeymillModuleOptions))).message, /no option `confg`/)
    assert.match((await rejection(() => application(null as unknown as KeymillModuleOptions))).message, /are { config: /)
    process.env.KEYMILL_CONFIG = 'memory:'
    await (await application({})).close()
  } finally {
    if (before === undefined) delete process.env.KEYMILL_CONFIG
    else process.env.KEYMILL_CONFIG = before
  }
})

test('an application beside another one keeps its mill to itself, and the last one’s close ends what it shared', async () => {
  const first = await application(`sqlite:${file('ids.db')}`)
  const second = await application(`sqlite:${file('ids.db')}`)
  first.get(Orders).orders.take(10)
  assert.equal(lazy('segment:orders')(), 11n, 'the first shares its mill')
  await second.close()
  assert.equal(lazy('segment:orders')(), 12n)
  await first.close()
  const third = await application(`sqlite:${file('ids.db')}`)
  assert.equal(lazy('segment:orders')(), 1n, 'a closed mill gives way')
  await third.close()
})

// The last one: what a class asks for stays asked for.
test('a wrong spec and a wrong configuration stop the start', async () => {
  @Injectable()
  class Wrong {
    constructor(@InjectSource('orders?stpe=5') readonly orders: Source) {}
  }
  @Module({ imports: [KeymillModule.forRoot('memory:')], providers: [Wrong] })
  class App {}
  const error = await rejection(() => NestFactory.createApplicationContext(App, { logger: false, abortOnError: false }))
  assert.match(error.message, /^@InjectSource\('segment:orders\?stpe=5'\): .*`stpe`/)
  const away = await rejection(() => application('mysql://app:hush@db:port/ids'))
  assert.equal(away.code, 'INVALID_CONFIG')
  assert.ok(!away.message.includes('hush'))
  const { getSourceToken } = await import('keymill/nest')
  assert.equal(getSourceToken('orders'), 'keymill segment:orders')
})
