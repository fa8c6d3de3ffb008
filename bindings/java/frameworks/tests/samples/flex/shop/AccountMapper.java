package shop;

import com.mybatisflex.core.BaseMapper;

public interface AccountMapper extends BaseMapper<Account> {}
