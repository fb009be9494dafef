// 17 cases: wrong keys, other tenants, sandboxes that are gone, limits of
// patience, and what cannot be asked.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { e2b, fresh, headersOf, ids, pages, shared, sleep, until, untilGone } from './helper.mjs'

const { AuthenticationError, InvalidArgumentError, Sandbox, SandboxError, SandboxNotFoundError, TimeoutError } = e2b

const UNKNOWN = '01m7jg3d8e1mv1yppav0wgszfx'
const box = await shared()

test('a wrong key is refused', async () => {
  const key = process.env.E2B_API_KEY
  for (const apiKey of ['e2b_00', `e2b_${'0'.repeat(80)}`, 'x', key.slice(0, -2), `${key}0`]) {
    await assert.rejects(Sandbox.create({ apiKey }), AuthenticationError)
  }
  await assert.rejects(Sandbox.list({ apiKey: 'x' }).nextItems(), AuthenticationError)
  await assert.rejects(Sandbox.kill(box.sandboxId, { apiKey: 'x' }), AuthenticationError)
})

test('a key that has ended is refused', async () => {
  await assert.rejects(Sandbox.create({ apiKey: process.env.E2B_REVOKED_KEY }), AuthenticationError)
})

test('another tenant sees nothing', async () => {
  const options = { apiKey: process.env.E2B_OTHER_KEY }
  assert(!(await ids(options)).includes(box.sandboxId))
  await assert.rejects(Sandbox.getInfo(box.sandboxId, options), SandboxNotFoundError)
  await assert.rejects(Sandbox.getMetrics(box.sandboxId, options), SandboxNotFoundError)
})

test('another tenant changes nothing', async () => {
  const options = { apiKey: process.env.E2B_OTHER_KEY }
  const { endAt } = await box.getInfo()
  assert.equal(await Sandbox.kill(box.sandboxId, options), false)
  for (const act of ['connect', 'pause', 'fork', 'createSnapshot']) {
    await assert.rejects(Sandbox[act](box.sandboxId, options), SandboxNotFoundError)
  }
  await assert.rejects(Sandbox.setTimeout(box.sandboxId, 1000, options), SandboxNotFoundError)
  assert.equal(await box.isRunning(), true)
  assert.deepEqual((await box.getInfo()).endAt, endAt)
})

test('another tenant starts nothing from a snapshot', async (t) => {
  const { snapshotId } = await box.createSnapshot({ name: 'npm-mine' })
  t.after(() => Sandbox.deleteSnapshot(snapshotId))
  const options = { apiKey: process.env.E2B_OTHER_KEY }
  for (const name of [snapshotId, 'npm-mine']) await assert.rejects(Sandbox.create(name, options), SandboxError)
  assert.equal(await Sandbox.deleteSnapshot(snapshotId, options), false)
  assert.deepEqual((await pages(Sandbox.listSnapshots(options))).flat(), [])
})

test('a token is for its own sandbox', async (t) => {
  const other = await fresh(t)
  const status = async (headers) => (await fetch(`${process.env.E2B_SANDBOX_URL}/files?path=/etc/hostname`, { headers })).status
  const ours = headersOf(box, 49983)
  assert.equal(await status(ours), 200)
  assert.equal(await status({ ...ours, 'X-Access-Token': other.trafficAccessToken }), 401)
  assert.equal(await status({ ...ours, 'X-Access-Token': 'x' }), 401)
  delete ours['X-Access-Token']
  assert.equal(await status(ours), 401)
})

test('unknown sandboxes are told as such', async () => {
  for (const id of [UNKNOWN, 'not-an-id', '../../etc', 'a b?c#d']) {
    await assert.rejects(Sandbox.connect(id), SandboxNotFoundError)
    await assert.rejects(Sandbox.getInfo(id), SandboxNotFoundError)
    await assert.rejects(Sandbox.pause(id), SandboxNotFoundError)
    await assert.rejects(Sandbox.setTimeout(id, 1000), SandboxNotFoundError)
    await assert.rejects(Sandbox.createSnapshot(id), SandboxNotFoundError)
    assert.equal(await Sandbox.kill(id), false)
    assert.equal(await Sandbox.deleteSnapshot(id), false)
  }
})

test('a command in a sandbox that is killed ends', async (t) => {
  const sandbox = await fresh(t)
  const handle = await sandbox.commands.run('echo up; sleep 300', { background: true, timeoutMs: 0 })
  await until(() => handle.stdout === 'up\n')
  await sandbox.kill()
  await assert.rejects(handle.wait(), (error) => error instanceof SandboxError)
  assert.equal(handle.stdout, 'up\n')
})

test('a command that is paused away ends', async (t) => {
  const sandbox = await fresh(t)
  const handle = await sandbox.commands.run('sleep 300', { background: true, timeoutMs: 0 })
  await sandbox.pause()
  await assert.rejects(handle.wait(), (error) => error instanceof SandboxError)
  await sandbox.connect()
  assert.equal((await sandbox.commands.list()).length, 0)
})

test('arguments that cannot be are refused before they are sent', async () => {
  await assert.rejects(Sandbox.create({ lifecycle: { onTimeout: 'sleep' } }), InvalidArgumentError)
  await assert.rejects(Sandbox.create({ lifecycle: { onTimeout: 'kill', autoResume: true } }), InvalidArgumentError)
  await assert.rejects(Sandbox.connect(box.sandboxId, { onResume: 'other' }), InvalidArgumentError)
  await assert.rejects(box.files.write('a', 'x', { metadata: { 'a b': 'x' } }), InvalidArgumentError)
  assert.equal(await box.files.exists('a'), false)
})

test('arguments that cannot be are refused by the server', async () => {
  await assert.rejects(Sandbox.list({ limit: 0 }).nextItems(), { statusCode: 400 })
  await assert.rejects(Sandbox.list({ nextToken: 'none of ours' }).nextItems(), { statusCode: 400 })
  await assert.rejects(Sandbox.list({ order: 'sideways' }).nextItems(), { statusCode: 400 })
  await assert.rejects(Sandbox.list({ query: { state: ['asleep'] } }).nextItems(), { statusCode: 400 })
  await assert.rejects(Sandbox.create({ envs: { 'A=B': 'x' } }), { statusCode: 400 })
  await assert.rejects(box.createSnapshot({ name: 'x'.repeat(200) }), { statusCode: 400 })
})

test('a request that is aborted before it is sent does nothing', async () => {
  const signal = AbortSignal.abort()
  await assert.rejects(box.files.write('aborted', 'x', { signal }), { name: 'AbortError' })
  await assert.rejects(box.commands.run('touch aborted', { signal }), Error)
  await assert.rejects(box.getInfo({ signal }), { name: 'AbortError' })
  assert.equal(await box.files.exists('aborted'), false)
})

test('a command whose client goes away goes on', async () => {
  const controller = new AbortController()
  const handle = await box.commands.run('echo up; sleep 4426', { background: true, timeoutMs: 0, signal: controller.signal })
  await until(() => handle.stdout === 'up\n')
  controller.abort()
  await assert.rejects(handle.wait(), SandboxError)
  const again = await box.commands.connect(handle.pid, { timeoutMs: 0 })
  assert.equal(await again.kill(), true)
  await untilGone(box, 'sleep 4426')
})

test('a sandbox whose maker goes away ends in its time', async () => {
  const metadata = { gone: 'npm' }
  for (const ms of [1, 5, 20, 40]) {
    const creating = Sandbox.create({ metadata, timeoutMs: 1000, signal: AbortSignal.timeout(ms) })
    await creating.catch((error) => assert.match(error.name, /AbortError|TimeoutError/))
  }
  await until(async () => (await ids({ query: { metadata } })).length === 0)
})

test('a read that is aborted leaves everything healthy', async () => {
  await box.files.write('big', new Uint8Array(20 << 20).buffer)
  const controller = new AbortController()
  const reader = (await box.files.read('big', { format: 'stream', signal: controller.signal })).getReader()
  await reader.read()
  controller.abort()
  await assert.rejects(async () => { while (!(await reader.read()).done); }, { name: 'AbortError' })
  assert.equal((await box.commands.run('echo well')).stdout, 'well\n')
})

test('an upload that is aborted leaves everything healthy', async () => {
  const controller = new AbortController()
  // The client does not stop asking for more, so the source does.
  const endless = new ReadableStream({
    async pull(stream) {
      stream.enqueue(new Uint8Array(1 << 16))
      await sleep(20)
      if (controller.signal.aborted) stream.close()
    },
  })
  setTimeout(() => controller.abort(), 200)
  await assert.rejects(box.files.write('endless', endless, { signal: controller.signal }), { name: 'AbortError' })
  await box.files.write('endless', 'whole')
  assert.equal(await box.files.read('endless'), 'whole')
})

test('requests have their time', async () => {
  await assert.rejects(Sandbox.create({ requestTimeoutMs: 1, timeoutMs: 1000, metadata: { late: 'npm' } }), { name: 'TimeoutError' })
  await box.files.write('much', new Uint8Array(8 << 20).buffer)
  await assert.rejects(box.files.read('much', { requestTimeoutMs: 1 }), { name: 'TimeoutError' })
  await box.commands.run('mkfifo pipe')
  await assert.rejects(box.commands.run('cat pipe', { requestTimeoutMs: 600_000, timeoutMs: 500 }), TimeoutError)
  await until(async () => (await ids({ query: { metadata: { late: 'npm' } } })).length === 0)
})
