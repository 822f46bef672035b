const reasons: Readonly<Record<string, string>> = {
  ENOENT: 'it does not exist',
  ENOTDIR: 'a part of the path is no folder',
  EISDIR: 'it is a folder',
  EACCES: 'permission is denied',
  EPERM: 'permission is denied',
  ELOOP: 'its symbolic links lead round in a circle',
  ENAMETOOLONG: 'the name is too long',
  EIO: 'the device reports an error',
  ENOSPC: 'the disk is full',
  EDQUOT: 'the quota is used up',
  EFBIG: 'the file size limit is reached',
};

/** Why reading or writing failed, for the end of a message that names the place: words for common codes, else the code. */
export function failureReason(cause: unknown): string {
  const code = (cause as NodeJS.ErrnoException | null | undefined)?.code;
  if (typeof code === 'string' && /^E[A-Z0-9]+$/.test(code)) return reasons[code] ?? code;
  return cause instanceof Error ? cause.message.replace(/\.$/, '') : String(cause);
}
