// 7 cases: the users inside.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { e2b, place, shared } from './helper.mjs'

const { AuthenticationError } = e2b

const box = await shared()

test('commands run as who is asked for', async () => {
  assert.equal((await box.commands.run('whoami; echo $HOME')).stdout, 'user\n/home/user\n')
  assert.equal((await box.commands.run('whoami; echo $HOME', { user: 'user' })).stdout, 'user\n/home/user\n')
  assert.equal((await box.commands.run('whoami; id -u; echo $HOME', { user: 'root' })).stdout, 'root\n0\n/root\n')
})

test('files belong to who wrote them', async (t) => {
  const path = await place(t, box)
  await box.files.write(`${path}/mine`, 'x')
  await box.files.write(`${path}/of-root`, 'x', { user: 'root' })
  assert.equal((await box.files.getInfo(`${path}/mine`)).owner, 'user')
  assert.equal((await box.files.getInfo(`${path}/of-root`)).owner, 'root')
})

test('directories belong to who made them', async (t) => {
  const path = await place(t, box)
  await box.files.makeDir(`${path}/of-root`, { user: 'root' })
  assert.equal((await box.files.getInfo(`${path}/of-root`)).owner, 'root')
})

test('paths are meant from the home of who asks', async (t) => {
  t.after(() => box.files.remove('of-root.txt', { user: 'root' }))
  const told = await box.files.write('of-root.txt', 'x', { user: 'root' })
  assert.equal(told.path, '/root/of-root.txt')
  assert((await box.files.list('.', { user: 'root' })).some((entry) => entry.name === 'of-root.txt'))
  assert.equal(await box.files.exists('of-root.txt'), false)
})

test('what is for root is for root', async (t) => {
  const path = await place(t, box)
  await box.commands.run(`echo secret > ${path}/secret && chmod 600 ${path}/secret`, { user: 'root' })
  assert.equal((await box.commands.run(`cat ${path}/secret`, { user: 'root' })).stdout, 'secret\n')
  await assert.rejects(box.commands.run(`cat ${path}/secret`), (error) => /denied/.test(error.stderr))
})

test('a user that is missing is refused', async () => {
  const user = 'nobody-like-that'
  await assert.rejects(box.commands.run('true', { user }), AuthenticationError)
  await assert.rejects(box.files.write('/tmp/x', 'x', { user }), AuthenticationError)
  await assert.rejects(box.files.read('/etc/hostname', { user }), AuthenticationError)
  await assert.rejects(box.files.list('/', { user }), AuthenticationError)
  await assert.rejects(box.pty.create({ cols: 80, rows: 24, onData: () => {}, user }), AuthenticationError)
})

test('users that come later are known', async () => {
  const lines = 'echo npm-worker:x:4242: >> /etc/group; echo npm-worker:x:4242:4242::/home/npm-worker:/bin/bash >> /etc/passwd'
  await box.commands.run(`${lines}; install -d -o npm-worker /home/npm-worker`, { user: 'root' })
  assert.equal((await box.commands.run('whoami; pwd', { user: 'npm-worker' })).stdout, 'npm-worker\n/home/npm-worker\n')
  await box.files.write('a', 'x', { user: 'npm-worker' })
  assert.equal((await box.files.getInfo('/home/npm-worker/a')).owner, 'npm-worker')
})
