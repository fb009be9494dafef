// 8 cases: snapshots, and what starts from them.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { e2b, fresh, ids, pages } from './helper.mjs'

const { Sandbox, SandboxError, SandboxNotFoundError } = e2b

async function snapshotOf(t, sandbox, options) {
  const snapshot = await sandbox.createSnapshot(options)
  t.after(() => Sandbox.deleteSnapshot(snapshot.snapshotId))
  return snapshot
}

test('a sandbox starts from a snapshot', async (t) => {
  const sandbox = await fresh(t)
  await sandbox.files.write('a', 'then')
  const snapshot = await snapshotOf(t, sandbox)
  await sandbox.files.write('a', 'now')
  const other = await fresh(t, {}, snapshot.snapshotId)
  assert.equal(await other.files.read('a'), 'then')
  assert.equal(await sandbox.files.read('a'), 'now')
})

test('a snapshot has a name', async (t) => {
  const sandbox = await fresh(t)
  await sandbox.files.write('a', 'named')
  const snapshot = await snapshotOf(t, sandbox, { name: 'npm-good-state' })
  assert.deepEqual(snapshot.names, ['npm-good-state'])
  const other = await fresh(t, {}, 'npm-good-state')
  assert.equal(await other.files.read('a'), 'named')
  assert.equal((await other.getInfo()).templateId, 'npm-good-state')
})

test('of several with one name the newest counts', async (t) => {
  const sandbox = await fresh(t)
  for (const text of ['old', 'new']) {
    await sandbox.files.write('a', text)
    await snapshotOf(t, sandbox, { name: 'npm-twice' })
  }
  const other = await fresh(t, {}, 'npm-twice')
  assert.equal(await other.files.read('a'), 'new')
})

test('snapshots are listed by sandbox and by name', async (t) => {
  const sandbox = await fresh(t)
  const one = await snapshotOf(t, sandbox, { name: 'npm-listed' })
  const two = await snapshotOf(t, sandbox)
  const found = async (list) => (await pages(list)).flat().map((snapshot) => snapshot.snapshotId)
  assert.deepEqual(new Set(await found(sandbox.listSnapshots())), new Set([one.snapshotId, two.snapshotId]))
  assert.deepEqual(await found(Sandbox.listSnapshots({ name: 'npm-listed' })), [one.snapshotId])
  const cut = await pages(sandbox.listSnapshots({ limit: 1 }))
  assert.deepEqual(cut.map((page) => page.length), [1, 1])
  const other = await fresh(t)
  assert.deepEqual(await found(other.listSnapshots()), [])
})

test('a snapshot is no sandbox', async (t) => {
  const sandbox = await fresh(t)
  const { snapshotId } = await snapshotOf(t, sandbox)
  assert(!(await ids()).includes(snapshotId))
  await assert.rejects(Sandbox.connect(snapshotId), SandboxNotFoundError)
  assert.equal(await Sandbox.kill(snapshotId), false)
})

test('a snapshot outlives its sandbox', async (t) => {
  const sandbox = await fresh(t)
  await sandbox.files.write('a', 'kept')
  const { snapshotId } = await snapshotOf(t, sandbox)
  await sandbox.kill()
  const other = await fresh(t, {}, snapshotId)
  assert.equal(await other.files.read('a'), 'kept')
})

test('what is deleted is gone', async (t) => {
  const sandbox = await fresh(t)
  const { snapshotId } = await sandbox.createSnapshot()
  assert.equal(await Sandbox.deleteSnapshot(snapshotId), true)
  assert.equal(await Sandbox.deleteSnapshot(snapshotId), false)
  await assert.rejects(Sandbox.create(snapshotId), SandboxError)
})

test('a snapshot gives no more network than was there', async (t) => {
  const closed = await fresh(t, { allowInternetAccess: false })
  const { snapshotId } = await snapshotOf(t, closed)
  await assert.rejects(Sandbox.create(snapshotId, { allowInternetAccess: true }), SandboxError)
  const other = await fresh(t, {}, snapshotId)
  assert.equal((await other.commands.run('ls /sys/class/net')).stdout, 'lo\n')
})
