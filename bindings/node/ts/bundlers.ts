/** What to do where keymill's code was put into a bundle. It imports nothing, so that it works there. */
export const bundlers = `A bundler that takes keymill's code leaves its libraries behind. Keep keymill out of the bundle:
  Next.js, in next.config: serverExternalPackages: ['keymill']
  esbuild: --external:keymill
  webpack: externals: { keymill: 'commonjs keymill' }`
