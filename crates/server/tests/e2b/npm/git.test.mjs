// 8 cases: the client's own words for git, in a sandbox with git.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { e2b, place, shared } from './helper.mjs'

const { CommandExitError, GitUpstreamError } = e2b

const box = await shared()
const author = { authorName: 'A B', authorEmail: 'a@b.org' }

/** A repository with one commit. */
async function repository(t) {
  const path = await place(t, box)
  await box.git.init(path, { initialBranch: 'main' })
  await box.files.write(`${path}/a`, 'one\n')
  await box.git.add(path)
  await box.git.commit(path, 'the first', author)
  return path
}

test('a repository is made and committed to', async (t) => {
  const path = await repository(t)
  assert.equal((await box.commands.run('git log --format="%s %an %ae"', { cwd: path })).stdout, 'the first A B a@b.org\n')
  assert.deepEqual([(await box.git.status(path)).isClean, (await box.git.status(path)).currentBranch], [true, 'main'])
})

test('changes have their kinds', async (t) => {
  const path = await repository(t)
  await box.files.write(`${path}/a`, 'two\n')
  await box.files.write(`${path}/new file`, '')
  await box.files.write(`${path}/staged`, '')
  await box.git.add(path, { files: ['staged'] })
  const status = await box.git.status(path)
  const kinds = Object.fromEntries(status.fileStatus.map((file) => [file.name, file.status]))
  assert.deepEqual([kinds.a, kinds.staged], ['modified', 'added'])
  assert.deepEqual([status.stagedCount, status.untrackedCount, status.totalCount], [1, 1, 3])
})

test('branches are made, changed and deleted', async (t) => {
  const path = await repository(t)
  await box.git.createBranch(path, 'other')
  assert.deepEqual(await box.git.branches(path), { branches: ['main', 'other'], currentBranch: 'other' })
  await box.git.checkoutBranch(path, 'main')
  await box.git.deleteBranch(path, 'other')
  assert.deepEqual(await box.git.branches(path), { branches: ['main'], currentBranch: 'main' })
})

test('changes are taken back', async (t) => {
  const path = await repository(t)
  await box.files.write(`${path}/a`, 'two\n')
  await box.git.restore(path, { paths: ['a'] })
  assert.equal(await box.files.read(`${path}/a`), 'one\n')
  await box.git.commit(path, 'the second', { ...author, allowEmpty: true })
  await box.git.reset(path, { mode: 'hard', target: 'HEAD~1' })
  assert.equal((await box.commands.run('git log --format=%s', { cwd: path })).stdout, 'the first\n')
})

test('one clones, pushes and pulls', async (t) => {
  const path = await place(t, box)
  await box.git.init(`${path}/bare`, { bare: true, initialBranch: 'main' })
  await box.git.clone(`${path}/bare`, { path: `${path}/one` })
  await box.files.write(`${path}/one/a`, 'pushed\n')
  await box.git.add(`${path}/one`)
  await box.git.commit(`${path}/one`, 'pushed', author)
  await box.git.push(`${path}/one`, { remote: 'origin', branch: 'main', setUpstream: true })
  await box.git.clone(`${path}/bare`, { path: `${path}/two` })
  assert.equal(await box.files.read(`${path}/two/a`), 'pushed\n')
  await box.git.commit(`${path}/one`, 'once more', { ...author, allowEmpty: true })
  assert.equal((await box.git.status(`${path}/one`)).ahead, 1)
  await box.git.push(`${path}/one`)
  await box.git.pull(`${path}/two`)
  assert.equal((await box.commands.run('git log -1 --format=%s', { cwd: `${path}/two` })).stdout, 'once more\n')
})

test('remotes are kept', async (t) => {
  const path = await repository(t)
  await box.git.remoteAdd(path, 'origin', 'https://a.org/b.git')
  assert.equal(await box.git.remoteGet(path, 'origin'), 'https://a.org/b.git')
  assert.equal(await box.git.remoteGet(path, 'other'), undefined)
  await assert.rejects(box.git.pull(path), GitUpstreamError)
})

test('settings stay where they are made', async (t) => {
  const path = await repository(t)
  await box.git.setConfig('user.name', 'Mine', { scope: 'local', path })
  assert.equal(await box.git.getConfig('user.name', { scope: 'local', path }), 'Mine')
  await box.git.configureUser('All', 'all@b.org')
  assert.equal(await box.git.getConfig('user.email'), 'all@b.org')
  assert.equal((await box.commands.run('cat ~/.gitconfig')).stdout.includes('all@b.org'), true)
  assert.equal(await box.git.getConfig('no.such'), undefined)
})

test('what git refuses is told with its words', async (t) => {
  const path = await place(t, box)
  await assert.rejects(box.git.status(path), (error) => error instanceof CommandExitError && /not a git repository/.test(error.stderr))
})
