// 31 cases: sandboxes made, found, timed, paused, forked and ended.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { e2b, fresh, ids, pages, until, untilGone } from './helper.mjs'

const { E2B, Sandbox, SandboxNotFoundError, Secret, Template, TimeoutError, Volume } = e2b

test('a sandbox is there until it is killed', async (t) => {
  const sandbox = await fresh(t)
  assert.equal(await sandbox.isRunning(), true)
  assert((await ids()).includes(sandbox.sandboxId))
  assert.equal(await sandbox.kill(), true)
  assert.equal(await sandbox.isRunning(), false)
  assert.equal(await sandbox.kill(), false)
  assert(!(await ids()).includes(sandbox.sandboxId))
})

test('what is killed says so', async (t) => {
  const sandbox = await fresh(t)
  await sandbox.kill()
  await assert.rejects(sandbox.commands.run('true'), SandboxNotFoundError)
  await assert.rejects(sandbox.commands.list(), (error) => error instanceof TimeoutError && /not found/.test(error.message))
  await assert.rejects(sandbox.files.read('/etc/hostname'), (error) => error instanceof TimeoutError && /not found/.test(error.message))
  await assert.rejects(sandbox.getInfo(), SandboxNotFoundError)
  await assert.rejects(sandbox.setTimeout(10_000), SandboxNotFoundError)
  await assert.rejects(sandbox.getMetrics(), SandboxNotFoundError)
  await assert.rejects(sandbox.fork(), SandboxNotFoundError)
  await assert.rejects(Sandbox.connect(sandbox.sandboxId), SandboxNotFoundError)
})

test('metadata and variables stay', async (t) => {
  const sandbox = await fresh(t, { metadata: { user: 'a b&c=ä', empty: '' }, envs: { MARK: 'here' } })
  assert.deepEqual((await sandbox.getInfo()).metadata, { user: 'a b&c=ä', empty: '' })
  assert.equal((await sandbox.commands.run('echo $MARK')).stdout, 'here\n')
  assert.equal((await sandbox.commands.run('echo $MARK', { envs: { MARK: 'there' } })).stdout, 'there\n')
})

test('a sandbox tells about itself', async (t) => {
  const sandbox = await fresh(t, { timeoutMs: 120_000 })
  const info = await sandbox.getInfo()
  assert.deepEqual([info.sandboxId, info.templateId, info.state], [sandbox.sandboxId, 'base', 'running'])
  assert.deepEqual(info.lifecycle, { onTimeout: 'kill', autoResume: false })
  const seconds = (info.endAt - info.startedAt) / 1000
  assert(seconds > 60 && seconds <= 122, `${seconds}`)
  assert(info.cpuCount >= 1 && info.memoryMB > 0 && info.envdVersion)
})

test('lists come in pages, in both orders', async (t) => {
  const metadata = { pages: 'npm' }
  const made = await Promise.all([1, 2, 3, 4, 5].map(() => fresh(t, { metadata })))
  const found = {}
  for (const order of ['asc', 'desc']) {
    const cut = await pages(Sandbox.list({ query: { metadata }, limit: 2, order }))
    assert.deepEqual(cut.map((page) => page.length), [2, 2, 1])
    found[order] = cut.flat().map((info) => info.sandboxId)
  }
  assert.deepEqual(new Set(found.asc), new Set(made.map((sandbox) => sandbox.sandboxId)))
  assert.deepEqual(found.asc, found.desc.toReversed())
})

test('a list goes on where another stopped', async (t) => {
  const metadata = { token: 'npm' }
  await Promise.all([1, 2].map(() => fresh(t, { metadata })))
  const first = Sandbox.list({ query: { metadata }, limit: 1 })
  const [one] = await first.nextItems()
  const second = Sandbox.list({ query: { metadata }, limit: 1, nextToken: first.nextToken })
  const [two] = await second.nextItems()
  assert.notEqual(one.sandboxId, two.sandboxId)
  assert.equal(second.hasNext, false)
  await assert.rejects(second.nextItems(), /No more items/)
})

test('lists are filtered by what sandboxes carry', async (t) => {
  const sandbox = await fresh(t, { metadata: { team: 'a b', kind: 'x=y&z' } })
  const has = async (query) => (await ids({ query })).includes(sandbox.sandboxId)
  assert.equal(await has({ metadata: { team: 'a b' } }), true)
  assert.equal(await has({ metadata: { team: 'a b', kind: 'x=y&z' } }), true)
  assert.equal(await has({ metadata: { team: 'a b', kind: 'other' } }), false)
  assert.equal(await has({ template: 'base' }), true)
  assert.equal(await has({ template: 'other' }), false)
})

test('lists are filtered by state and start', async (t) => {
  const sandbox = await fresh(t)
  const has = async (query) => (await ids({ query })).includes(sandbox.sandboxId)
  assert.equal(await has({ state: ['running'] }), true)
  assert.equal(await has({ state: ['paused'] }), false)
  assert.equal(await has({ state: ['running', 'paused'] }), true)
  const { startedAt } = await sandbox.getInfo()
  assert.equal(await has({ startedAfter: new Date(startedAt.getTime() - 1000) }), true)
  assert.equal(await has({ startedAfter: new Date(startedAt.getTime() + 60_000) }), false)
})

test('one connects by id', async (t) => {
  const sandbox = await fresh(t)
  const other = await Sandbox.connect(sandbox.sandboxId)
  await other.files.write('/home/user/a', 'from the other')
  assert.equal(await sandbox.files.read('/home/user/a'), 'from the other')
})

test('sandboxes are managed by their ids alone', async (t) => {
  const { sandboxId } = await fresh(t)
  assert.equal((await Sandbox.getInfo(sandboxId)).sandboxId, sandboxId)
  await Sandbox.setTimeout(sandboxId, 900_000)
  assert.equal(await Sandbox.pause(sandboxId), true)
  assert.equal((await Sandbox.getInfo(sandboxId)).state, 'paused')
  assert.equal(await Sandbox.kill(sandboxId), true)
  assert.equal(await Sandbox.kill(sandboxId), false)
})

test('time runs out', async (t) => {
  const sandbox = await fresh(t, { timeoutMs: 2000 })
  await until(async () => !(await sandbox.isRunning()))
  assert(!(await ids()).includes(sandbox.sandboxId))
})

test('time is set and extended', async (t) => {
  const sandbox = await fresh(t)
  const end = async () => (await sandbox.getInfo()).endAt
  await sandbox.setTimeout(60_000)
  const near = await end()
  await sandbox.connect({ timeoutMs: 900_000 })
  const far = await end()
  assert(far - near > 600_000)
  await sandbox.connect({ timeoutMs: 1000 })
  assert.deepEqual(await end(), far, 'connecting never takes time away')
  await sandbox.setTimeout(120_000)
  assert((await end()) < far, 'setting does')
})

test('times that cannot be are refused', async (t) => {
  const sandbox = await fresh(t)
  await assert.rejects(sandbox.setTimeout(-5000), { statusCode: 400 })
  await assert.rejects(sandbox.setTimeout(365 * 24 * 3600 * 1000), { statusCode: 400 })
  await assert.rejects(Sandbox.create({ timeoutMs: -5000 }), { statusCode: 400 })
  assert.equal(await sandbox.isRunning(), true)
})

test('pausing keeps files and ends processes', async (t) => {
  const sandbox = await fresh(t)
  await sandbox.files.write('kept', 'still here')
  await sandbox.commands.run('sleep 4425', { background: true, timeoutMs: 0 })
  assert.equal(await sandbox.pause(), true)
  assert.equal(await sandbox.pause(), false)
  assert.equal(await sandbox.isRunning(), false)
  assert((await ids({ query: { state: ['paused'] } })).includes(sandbox.sandboxId))
  await sandbox.connect()
  assert.equal(await sandbox.isRunning(), true)
  assert.equal(await sandbox.files.read('kept'), 'still here')
  await untilGone(sandbox, 'sleep 4425')
})

test('what is paused is not used until somebody connects', async (t) => {
  const sandbox = await fresh(t)
  await sandbox.pause()
  await assert.rejects(sandbox.commands.run('true'), SandboxNotFoundError)
  await assert.rejects(sandbox.files.read('/etc/hostname'), TimeoutError)
  await assert.rejects(sandbox.setTimeout(60_000), SandboxNotFoundError)
  assert.equal((await sandbox.getInfo()).state, 'paused')
  const again = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 60_000 })
  assert.equal((await again.commands.run('echo on')).stdout, 'on\n')
})

test('time that runs out may pause', async (t) => {
  const sandbox = await fresh(t, { lifecycle: { onTimeout: 'pause' } })
  await sandbox.files.write('a', 'kept')
  await sandbox.setTimeout(1000)
  await until(async () => (await sandbox.getInfo()).state === 'paused')
  await sandbox.connect({ timeoutMs: 60_000 })
  assert.equal(await sandbox.files.read('a'), 'kept')
})

test('use wakes what may be woken', async (t) => {
  const sandbox = await fresh(t, { lifecycle: { onTimeout: 'pause', autoResume: true } })
  assert.deepEqual((await sandbox.getInfo()).lifecycle, { onTimeout: 'pause', autoResume: true })
  await sandbox.files.write('a', 'kept')
  await sandbox.pause()
  assert.equal(await sandbox.files.read('a'), 'kept')
  assert.equal((await sandbox.getInfo()).state, 'running')
})

test('pausing without memory and going on by a start are understood', async (t) => {
  const sandbox = await fresh(t, { lifecycle: { onTimeout: { action: 'pause', keepMemory: false } } })
  await sandbox.files.write('a', 'kept')
  assert.equal(await sandbox.pause({ keepMemory: false }), true)
  await sandbox.connect({ onResume: 'reboot' })
  assert.equal(await sandbox.files.read('a'), 'kept')
})

test('forks go their own ways', async (t) => {
  const sandbox = await fresh(t, { metadata: { of: 'npm' }, envs: { MARK: 'here' } })
  await sandbox.files.write('a', 'common')
  const children = await sandbox.fork({ count: 3, timeoutMs: 120_000 })
  children.forEach((child) => t.after(() => child.kill()))
  assert.equal(new Set([sandbox, ...children].map((one) => one.sandboxId)).size, 4)
  for (const [number, child] of children.entries()) {
    assert.equal(await child.files.read('a'), 'common')
    await child.files.write('a', String(number))
  }
  assert.deepEqual(await Promise.all(children.map((child) => child.files.read('a'))), ['0', '1', '2'])
  assert.equal(await sandbox.files.read('a'), 'common')
  assert.equal((await children[0].commands.run('echo $MARK')).stdout, 'here\n')
})

test('forks are counted', async (t) => {
  const { sandboxId } = await fresh(t)
  await assert.rejects(Sandbox.fork(sandboxId, { count: 0 }), { statusCode: 400 })
  await assert.rejects(Sandbox.fork(sandboxId, { count: 21 }), { statusCode: 400 })
  const [only, ...more] = await Sandbox.fork(sandboxId)
  t.after(() => only.kill())
  assert.equal(more.length, 0)
  assert.notEqual(only.sandboxId, sandboxId)
})

test('a sandbox of a fork outlives its parent', async (t) => {
  const parent = await fresh(t)
  await parent.files.write('a', 'of the parent')
  const [child] = await parent.fork()
  t.after(() => child.kill())
  await parent.kill()
  assert.equal(await child.files.read('a'), 'of the parent')
})

test('what it uses is measured', async (t) => {
  const sandbox = await fresh(t)
  const [now] = await sandbox.getMetrics({ start: new Date(Date.now() - 60_000), end: new Date() })
  assert(now.memUsed > 0 && now.memUsed < now.memTotal, `${now.memUsed}`)
  assert(now.diskUsed > 0 && now.diskUsed < now.diskTotal, `${now.diskUsed}`)
  assert(now.cpuCount >= 1 && now.cpuUsedPct >= 0)
  assert(Math.abs(now.timestamp - Date.now()) < 300_000)
})

test('there is no way out when none is wanted', async (t) => {
  for (const options of [{ allowInternetAccess: false }, { network: { denyOut: ({ allTraffic }) => [allTraffic] } }]) {
    const sandbox = await fresh(t, options)
    const done = await sandbox.commands.run('ls /sys/class/net; cat /proc/net/route | tail -n +2')
    assert.equal(done.stdout, 'lo\n')
    assert.equal((await sandbox.commands.run('echo "[$HTTP_PROXY]"')).stdout, '[]\n')
  }
})

test('rules that cannot be held are refused', async () => {
  const transform = { headers: { A: 'b' } }
  for (const network of [
    { denyOut: ['1.2.3.4'] },
    { rules: { 'a.org': [{ transform }] } },
    { egressProxy: { address: 'a.org:1080' } },
  ]) {
    await assert.rejects(Sandbox.create({ network }), { statusCode: 400 })
  }
})

test('the network is set once', async (t) => {
  const sandbox = await fresh(t)
  await assert.rejects(sandbox.updateNetwork({ allowOut: ['a.org'] }), /when it is made/)
})

test('what is not there is refused with a reason', async () => {
  await assert.rejects(Sandbox.create('no-such-template'), /no-such-template/)
  await assert.rejects(Sandbox.create({ volumeMounts: { '/mnt/v': 'v' } }), /volumes/)
  await assert.rejects(Sandbox.create({ mcp: { time: {} } }), /MCP/)
  await assert.rejects(Sandbox.create({ iam: { tokens: { a: e2b.Secret.iamToken({ audience: 'a', tokenType: 'JWT-SVID' }) } } }), /identity/)
})

test('the same request twice makes one', async (t) => {
  const apiHeaders = { 'Idempotency-Key': `npm-${process.pid}` }
  const first = await fresh(t, { apiHeaders })
  const second = await Sandbox.create({ apiHeaders })
  assert.equal(second.sandboxId, first.sandboxId)
})

test('several are made at once', async (t) => {
  const made = await Promise.all(Array.from({ length: 6 }, () => fresh(t)))
  const told = await Promise.all(made.map((sandbox) => sandbox.commands.run('echo $E2B_SANDBOX_ID')))
  assert.deepEqual(told.map((done) => done.stdout.trim()), made.map((sandbox) => sandbox.sandboxId))
})

test('a client is bound to its own server and key', async (t) => {
  const bound = new E2B({ apiKey: process.env.E2B_API_KEY, apiUrl: process.env.E2B_API_URL })
  const sandbox = await bound.Sandbox.create({ timeoutMs: 60_000 })
  t.after(() => sandbox.kill())
  assert.equal((await sandbox.commands.run('echo bound')).stdout, 'bound\n')
  const nowhere = new E2B({ apiKey: 'e2b_00', apiUrl: process.env.E2B_API_URL })
  await assert.rejects(nowhere.Sandbox.list().nextItems(), e2b.AuthenticationError)
})

test('templates are known by their names', async (t) => {
  const sandbox = await fresh(t)
  const { snapshotId } = await sandbox.createSnapshot({ name: 'npm-known' })
  t.after(() => Sandbox.deleteSnapshot(snapshotId))
  for (const name of ['base', 'code-interpreter-v1', 'standard', 'npm-known', snapshotId]) {
    assert.equal(await Template.exists(name), true, name)
  }
  assert.equal(await Template.exists('no-such-template'), false)
})

test('volumes, secrets and built templates are refused with a reason', async () => {
  await assert.rejects(Volume.create('v'), /400: volumes/)
  await assert.rejects(Volume.list(), /400: volumes/)
  await assert.rejects(Secret.create('s', 'v'), /400: secrets/)
  await assert.rejects(Secret.list().nextItems(), /400: secrets/)
  const template = Template().fromImage('debian:12').runCmd('true')
  await assert.rejects(Template.build(template, 'mine'), /400: templates are not built/)
  await assert.rejects(Template.getTags('base'), /400: templates are not built/)
})
