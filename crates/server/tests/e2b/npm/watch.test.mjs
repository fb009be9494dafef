// 11 cases: watching directories.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { e2b, fresh, place, shared, sleep, until } from './helper.mjs'

const { FileNotFoundError, FilesystemEventType, InvalidArgumentError, TimeoutError } = e2b
const { CHMOD, CREATE, REMOVE, RENAME, WRITE } = FilesystemEventType

const box = await shared()

/** What a watch tells; it ends with its case. */
async function watched(t, path, options = {}) {
  const events = []
  const handle = await box.files.watchDir(path, (event) => { events.push(event) }, { timeoutMs: 600_000, ...options })
  t.after(() => handle.stop())
  const has = (name, type) => events.some((event) => event.name === name && event.type === type)
  const tells = (name, type) => until(() => has(name, type), () => `no ${type} of ${name} in ${JSON.stringify(events)}`)
  return { events, handle, has, tells }
}

test('a new file is told, and what is written', async (t) => {
  const path = await place(t, box)
  const { tells } = await watched(t, path)
  await box.files.write(`${path}/a`, 'x')
  await tells('a', CREATE)
  await tells('a', WRITE)
})

test('changes of rights are told', async (t) => {
  const path = await place(t, box)
  await box.files.write(`${path}/a`, 'x')
  const { tells } = await watched(t, path)
  await box.commands.run(`chmod 600 ${path}/a`)
  await tells('a', CHMOD)
})

test('moving is a name that goes and one that comes', async (t) => {
  const path = await place(t, box)
  await box.files.write(`${path}/a`, 'x')
  const { tells, has } = await watched(t, path)
  await box.files.rename(`${path}/a`, `${path}/b`)
  await tells('a', RENAME)
  await tells('b', CREATE)
  assert.equal(has('b', REMOVE), false)
})

test('removing is told', async (t) => {
  const path = await place(t, box)
  await box.files.write(`${path}/a`, 'x')
  const { tells } = await watched(t, path)
  await box.files.remove(`${path}/a`)
  await tells('a', REMOVE)
})

test('a flat watch sees nothing below', async (t) => {
  const path = await place(t, box)
  await box.files.makeDir(`${path}/sub`)
  const { events, tells } = await watched(t, path)
  await box.files.write(`${path}/sub/x`, '1')
  await box.files.write(`${path}/last`, '2')
  await tells('last', CREATE)
  assert.deepEqual(events.filter((event) => event.name.includes('x')), [])
})

test('a deep watch sees what is below, also in new directories', async (t) => {
  const path = await place(t, box)
  await box.files.makeDir(`${path}/sub`)
  const { tells } = await watched(t, path, { recursive: true })
  await box.files.write(`${path}/sub/x`, '1')
  await box.files.write(`${path}/new/dir/y`, '2')
  await tells('sub/x', CREATE)
  await tells('new/dir/y', CREATE)
})

test('entries come along when they are wanted', async (t) => {
  const path = await place(t, box)
  const { events, tells } = await watched(t, path, { includeEntry: true })
  await box.files.write(`${path}/a`, '12345')
  await tells('a', WRITE)
  await until(() => events.some((event) => event.entry?.size === 5), () => JSON.stringify(events))
  const { entry } = events.find((event) => event.entry?.size === 5)
  assert.deepEqual([entry.name, entry.path, entry.type, entry.owner], ['a', `${path}/a`, 'file', 'user'])
})

test('entries stay away when nobody asked', async (t) => {
  const path = await place(t, box)
  const { events, tells } = await watched(t, path)
  await box.files.write(`${path}/a`, 'x')
  await tells('a', WRITE)
  assert(events.every((event) => event.entry === undefined))
})

test('a watch that is stopped tells no more, and others go on', async (t) => {
  const path = await place(t, box)
  let exits = 0
  const stopped = await watched(t, path, { onExit: () => { exits += 1 } })
  const other = await watched(t, path)
  await stopped.handle.stop()
  await until(() => exits === 1)
  await box.files.write(`${path}/a`, 'x')
  await other.tells('a', CREATE)
  assert.deepEqual(stopped.events, [])
})

test('a watch has its time, and ends with its sandbox', async (t) => {
  const errors = []
  const onExit = (error) => { errors.push(error) }
  await box.files.watchDir('/home/user', () => {}, { timeoutMs: 1000, onExit }).catch(onExit)
  await until(() => errors.length === 1)
  assert(errors[0] instanceof TimeoutError, String(errors[0]))
  const sandbox = await fresh(t)
  await sandbox.files.watchDir('/home/user', () => {}, { timeoutMs: 0, onExit })
  await sleep(100)
  await sandbox.kill()
  await until(() => errors.length === 2)
})

test('a watch of nothing is refused', async (t) => {
  const path = await place(t, box)
  await box.files.write(`${path}/file`, '')
  await assert.rejects(box.files.watchDir(`${path}/nothing`, () => {}), FileNotFoundError)
  await assert.rejects(box.files.watchDir(`${path}/file`, () => {}), InvalidArgumentError)
})
